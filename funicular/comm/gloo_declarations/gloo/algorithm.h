#pragma once
// LibTorch has Gloo inside but not Gloo's headers, which its own ProcessGroupGloo.hpp includes. These are the
// declarations that it needs; nothing of ours calls any of them, all goes through c10d.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>
