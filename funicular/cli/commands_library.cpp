#include "funicular/cli/commands_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <filesystem>
#include <optional>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/version.h"

namespace funicular::cli {

namespace {

const CommandsLibrary* loaded = nullptr;

/// Beside the library of the layers without LibTorch, wherever that was found.
std::filesystem::path library_path() {
  const auto name = "libfunicular_commands.so." FUNICULAR_VERSION;
  Dl_info found{};
  if (!::dladdr(reinterpret_cast<const void*>(&nearest), &found) || !found.dli_fname) return name;
  return std::filesystem::absolute(found.dli_fname).parent_path() / name;
}

/// LibTorch's libraries alone take more addresses. It aborts where memory ends while it is loaded.
constexpr rlim_t kLeastAddresses = rlim_t{512} << 20;

[[noreturn]] void fail(const std::string& reason, const std::optional<rlim_t>& limit) {
  throw RunError("library", "the commands that need LibTorch cannot be loaded: {}{}", reason,
                 limit ? fmt::format("; this process may have {} MB of addresses (ulimit -v), and LibTorch "
                                     "needs about 800",
                                     *limit >> 20)
                       : "");
}

const CommandsLibrary* load() {
  rlimit addresses{};
  const bool limited = ::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY;
  const std::optional<rlim_t> limit = limited ? std::optional(addresses.rlim_cur) : std::nullopt;
  if (limit && *limit < kLeastAddresses) fail("out of memory", limit);
  const std::filesystem::path path = library_path();
  // Never closed: LibTorch cannot be unloaded. Global, as if the program were linked with it.
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  const void* const found = library ? ::dlsym(library, "funicular_commands_library") : nullptr;
  if (!found) {
    const char* const reason = ::dlerror();
    fail(reason ? reason : path.string(), limit);
  }
  return static_cast<const CommandsLibrary*>(found);
}

}  // namespace

const CommandsLibrary& commands_library() {
  if (!loaded) loaded = load();
  return *loaded;
}

const CommandsLibrary* loaded_commands_library() {
  return loaded;
}

}  // namespace funicular::cli

void funicular_load_commands() {
  funicular::cli::commands_library();
}
