#include "funicular/base/toml_file.h"

#include "funicular/base/error.h"
#include "funicular/base/toml_depth.h"

namespace funicular {

toml::table parse_toml(std::string_view text, const std::string& file, std::string_view component) {
  if (const auto problem = toml_depth_problem(text))
    throw InputError(component, "{}:{}: {}", file, problem->line, problem->text);
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw InputError(component, "{}:{}: not valid TOML: {}", file, error.source().begin.line,
                     error.description());
  }
}

}  // namespace funicular
