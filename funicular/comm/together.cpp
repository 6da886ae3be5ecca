#include "funicular/comm/together.h"

#include <vector>

#include "funicular/core/error_text.h"

namespace funicular::comm {

namespace {

/// "" for no error; else a letter for its kind, and its text.
std::string describe(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const InputError& wrong) {
    return std::string("I") + wrong.what();
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
    throw RunError("ranks", "rank {} stopped: {}", rank, outcome.substr(1));
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

}  // namespace funicular::comm
