#include "funicular/cli/required_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::cli {

namespace {

/// Returns which option took an existing path as the last of its values, and what to do; "" if none did. Options whose
/// values are paths do not count.
std::string path_among_values(const Arguments& arguments) {
  const std::vector<const Declaration*> declared = arguments.declarations();
  const std::vector<Arguments::Setting> settings = arguments.settings();
  for (size_t at = 0; at < settings.size(); ++at) {
    if (!declared[at]->many || settings[at].path || !settings[at].given) continue;
    const std::string& last = settings[at].values.back();
    std::error_code ignored;
    if (fs::exists(last, ignored))
      return fmt::format("--{} took \"{}\"; put files before options", settings[at].name, last);
  }
  return "";
}

bool needs_no_name(const Arguments& arguments, const std::string& option) {
  const std::vector<std::string>& names = arguments.unnamed_options();
  return std::find(names.begin(), names.end(), option) != names.end();
}

}  // namespace

void require_options(const Arguments& arguments, const std::string& origin) {
  for (const Declaration* const option : arguments.declarations()) {
    if (!option->required || arguments.given(option->name)) continue;
    if (!option->unless.empty() && arguments.given(option->unless)) continue;
    const std::string taken =
        needs_no_name(arguments, option->name) ? path_among_values(arguments) : std::string();
    throw InputError("usage", "{}: --{} {} is required: {}{}{}", origin, option->name, option->value,
                     option->help, taken.empty() ? "" : "; ", taken);
  }
}

void warn_of_path_among_values(const Arguments& arguments) {
  for (const std::string& name : arguments.unnamed_options()) {
    if (arguments.given(name)) continue;
    if (const std::string taken = path_among_values(arguments); !taken.empty())
      log::warning("--{} is not given, and {}", name, taken);
    return;
  }
}

}  // namespace funicular::cli
