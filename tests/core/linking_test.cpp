#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace funicular {
namespace {

/// LibTorch's libraries have functions of these names, too; those of a CUDA build end the program: cmake/torch.cmake.
TEST(Linking, TakesFilesystemFunctionsFromTheStandardLibrary) {
  std::uintmax_t (*remove_all)(const std::filesystem::path&) = &std::filesystem::remove_all;
  Dl_info found{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(remove_all), &found), 0);
  EXPECT_NE(std::string(found.dli_fname).find("libstdc++"), std::string::npos) << found.dli_fname;
}

}  // namespace
}  // namespace funicular
