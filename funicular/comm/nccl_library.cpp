#include "funicular/comm/nccl_library.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "funicular/base/error.h"

namespace funicular::comm::nccl {

namespace {

constexpr const char* kComponent = "nccl";
constexpr const char* kVariable = "FUNICULAR_NCCL";
constexpr const char* kName = "libnccl.so.2";

/// The file that holds this address; empty if it is unknown.
std::filesystem::path file_of(const void* address) {
  Dl_info found;
  return ::dladdr(address, &found) != 0 && found.dli_fname ? found.dli_fname : "";
}

/// Places in which NCCL may be, the likeliest first. Wheels of LibTorch have it in site-packages/nvidia/nccl/lib, and
/// their own libraries in site-packages/torch/lib.
std::vector<std::string> places() {
  std::vector<std::string> found;
  const std::filesystem::path libtorch =
      file_of(reinterpret_cast<const void*>(&at::globalContext)).parent_path();
  for (const std::filesystem::path& folder :
       {libtorch.parent_path().parent_path() / "nvidia/nccl/lib", libtorch})
    if (const auto file = folder / kName; std::filesystem::exists(file)) found.push_back(file.string());
  found.emplace_back(kName);
  return found;
}

void* open_first(const std::vector<std::string>& tried) {
  std::string errors;
  for (const std::string& place : tried) {
    if (void* const handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    const char* const error = ::dlerror();
    errors += fmt::format("; {}", error ? error : place);
  }
  throw InputError(
      kComponent,
      "found no NCCL{}; expected {} beside LibTorch or on the system's path. Install the package "
      "nvidia-nccl-cu13, or set {} to the file",
      errors, kName, kVariable);
}

template <class Function>
void find(void* handle, const std::string& path, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (!function)
    throw InputError(kComponent, "{} has no function {}; expected NCCL {} or newer", path, name,
                     version_text(kOldestVersion));
}

void find_functions(void* handle, Library& library) {
  const auto get = [&](const char* name, auto& function) { find(handle, library.path, name, function); };
  get("ncclGetUniqueId", library.get_unique_id);
  get("ncclCommInitRankConfig", library.comm_init);
  get("ncclCommFinalize", library.comm_finalize);
  get("ncclCommDestroy", library.comm_destroy);
  get("ncclCommAbort", library.comm_abort);
  get("ncclCommGetAsyncError", library.comm_async_error);
  get("ncclGetErrorString", library.error_string);
  get("ncclGetLastError", library.last_error);
  get("ncclGroupStart", library.group_start);
  get("ncclGroupEnd", library.group_end);
  get("ncclAllReduce", library.all_reduce);
  get("ncclReduce", library.reduce);
  get("ncclReduceScatter", library.reduce_scatter);
  get("ncclAllGather", library.all_gather);
  get("ncclBroadcast", library.broadcast);
  get("ncclSend", library.send);
  get("ncclRecv", library.receive);
}

std::optional<std::string> named_path() {
  const char* const path = std::getenv(kVariable);
  return path && *path ? std::optional<std::string>(path) : std::nullopt;
}

}  // namespace

Library load(const std::optional<std::string>& path) {
  void* const handle = open_first(path ? std::vector{*path} : places());
  Library library;
  library.path = path.value_or(kName);
  find(handle, library.path, "ncclGetVersion", library.get_version);
  if (const auto file = file_of(reinterpret_cast<const void*>(library.get_version)); !file.empty())
    library.path = file.string();
  if (library.get_version(&library.version) != Result::success || library.version < kOldestVersion)
    throw InputError(kComponent, "{} is NCCL {}; expected {} or newer", library.path,
                     version_text(library.version), version_text(kOldestVersion));
  find_functions(handle, library);
  library.on_host = ::dlsym(handle, "funicular_nccl_stand_in") != nullptr;
  return library;
}

const Library& library() {
  static const Library loaded = load(named_path());
  return loaded;
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

void use_interface(const std::string& name) {
  // "=" asks for exactly this name. Without it NCCL takes all interfaces whose names begin so.
  ::setenv("NCCL_SOCKET_IFNAME", ("=" + name).c_str(), 0);
}

std::vector<std::string> variables_of(const char* const* environment) {
  std::vector<std::string> found;
  for (; *environment; ++environment)
    if (const std::string_view one = *environment; one.starts_with("NCCL_")) found.emplace_back(one);
  std::sort(found.begin(), found.end());
  return found;
}

std::string describe() {
  const std::vector<std::string> variables = variables_of(::environ);
  return fmt::format("NCCL {} in {}{}{}", version_text(library().version), library().path,
                     variables.empty() ? "" : ", with ", fmt::join(variables, " "));
}

}  // namespace funicular::comm::nccl
