#include "funicular/format/model_folder.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace funicular::format {

namespace {

constexpr const char* kConfig = "config.json";

/// The value of an environment variable as a path; "~" at its start is the home folder, as huggingface_hub has it.
fs::path path_in(const char* variable) {
  const char* const value = std::getenv(variable);
  const std::string text = value ? value : "";
  const char* const home = std::getenv("HOME");
  if (home && (text == "~" || text.starts_with("~/")))
    return fs::path(home) / text.substr(std::min<size_t>(2, text.size()));
  return text;
}

std::string first_word(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return "";
  const std::string text = read_file(file);
  return text.substr(0, text.find_first_of(" \t\r\n"));
}

bool is_part(std::string_view text) {
  const auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  return !text.empty() && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), is_allowed);
}

}  // namespace

bool is_hub_name(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == text.npos) return is_part(text);
  return is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
}

fs::path hub_cache() {
  for (const char* const variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const fs::path cache = path_in(variable); !cache.empty()) return cache;
  if (const fs::path home = path_in("HF_HOME"); !home.empty()) return home / "hub";
  if (const fs::path caches = path_in("XDG_CACHE_HOME"); !caches.empty())
    return caches / "huggingface" / "hub";
  const fs::path home = path_in("HOME");
  return home.empty() ? home : home / ".cache" / "huggingface" / "hub";
}

fs::path hub_snapshot(std::string_view name) {
  const fs::path cache = hub_cache();
  if (cache.empty() || !is_hub_name(name)) return {};
  std::string folder = "models--" + std::string(name);
  if (const size_t slash = folder.find('/'); slash != folder.npos) folder.replace(slash, 1, "--");
  const std::string commit = first_word(cache / folder / "refs" / "main");
  if (commit.empty() || !is_part(commit)) return {};
  fs::path snapshot = cache / folder / "snapshots" / commit;
  std::error_code ignored;
  return fs::is_regular_file(snapshot / kConfig, ignored) ? snapshot : fs::path();
}

fs::path find_model_folder(const fs::path& given) {
  std::error_code ignored;
  if (!fs::exists(given, ignored)) {
    const fs::path snapshot = hub_snapshot(given.string());
    return snapshot.empty() ? given : snapshot;
  }
  const auto holds_model = [&](const fs::path& folder) {
    // A table of static embeddings has modules alone.
    return fs::exists(folder / kConfig, ignored) || fs::exists(folder / "modules.json", ignored);
  };
  return !holds_model(given) && holds_model(given / "model") ? given / "model" : given;
}

}  // namespace funicular::format
