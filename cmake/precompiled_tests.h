// What most test sources include: GoogleTest beside the rest.
#pragma once
#include <gtest/gtest.h>
#include "cmake/precompiled.h"
