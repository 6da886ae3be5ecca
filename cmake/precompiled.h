// What most sources that use LibTorch include. Never torch/torch.h: it costs 15 s a file.
#pragma once
#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>
#include <nlohmann/json.hpp>
