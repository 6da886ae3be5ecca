#include "funicular/comm/together.h"

#include <vector>

#include "funicular/base/json_text.h"
#include "funicular/core/error_text.h"

namespace funicular::comm {

namespace {

/// "" for no error; else a letter for its kind, and its text.
std::string describe(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const Error& error) {
    const char kind = error.code() == ExitCode::usage         ? 'I'
                      : error.code() == ExitCode::interrupted ? 'S'
                                                              : 'R';
    return kind + std::string(error.what());
  } catch (const std::exception& failed) {
    return "R" + error_text(failed);
  } catch (...) {
    return "Ran unknown error";
  }
}

void agree(const std::vector<std::string>& outcomes, const std::exception_ptr& own) {
  if (own) std::rethrow_exception(own);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const std::string& outcome = outcomes[rank];
    if (outcome.empty()) continue;
    if (outcome[0] == 'I') throw InputError("ranks", "rank {} stopped: {}", rank, outcome.substr(1));
    const std::string text = outcome.substr(1);
    if (outcome[0] == 'S')
      throw Error(ExitCode::interrupted, "ranks", "rank {} stopped: {}", fmt::make_format_args(rank, text));
    throw RunError("ranks", "rank {} stopped: {}", rank, text);
  }
}

}  // namespace

void together(const comm::Group& group, const std::function<void()>& action) {
  if (group.size() == 1) return action();
  std::exception_ptr error;
  try {
    action();
  } catch (...) {
    error = std::current_exception();
  }
  agree(group.gather_texts(describe(error)), error);
}

std::string from_first(const comm::Group& group, const std::function<std::string()>& make) {
  std::string text;
  together(group, [&] {
    if (group.rank() == 0) text = make();
  });
  return group.size() == 1 ? text : group.gather_texts(text).front();
}

void require_equal(const comm::Group& group, const std::string& component,
                   const std::function<std::map<std::string, std::string>()>& describe) {
  if (group.size() == 1) return;
  using Values = std::map<std::string, std::string>;
  std::string own;
  together(group, [&] { own = json_text(Json(describe())); });
  const std::vector<std::string> texts = group.gather_texts(own);
  const auto first = Json::parse(texts.front()).get<Values>();
  for (size_t rank = 1; rank < texts.size(); ++rank)
    for (const auto& [name, value] : Json::parse(texts[rank]).get<Values>())
      if (first.at(name) != value)
        throw InputError(
            component,
            "{} differs: rank {} has \"{}\", rank 0 has \"{}\"; expected the same command, data and "
            "model on all ranks, which share the rows",
            name, rank, value, first.at(name));
}

}  // namespace funicular::comm
