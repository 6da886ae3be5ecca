#include "funicular/pipeline/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/mapped_text.h"

namespace funicular::pipeline {

namespace {

constexpr int kLargest = 65535;

/// In the order of Kind.
constexpr std::array<std::string_view, 10> kLetters = {"F", "B", "I", "W", "SF", "RF", "SB", "RB", "R", "U"};

std::string_view letters_of(Kind kind) {
  return kLetters[static_cast<size_t>(kind)];
}

/// Reads one action; throws InputError describing a malformed one.
class ActionReader {
 public:
  ActionReader(std::string_view text, const std::string& place) : text_(text), rest_(text), place_(place) {}

  Action read() {
    Action action;
    action.stage = number("a stage's number");
    const auto end =
        std::find_if_not(rest_.begin(), rest_.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    const std::string_view letters = rest_.substr(0, static_cast<size_t>(end - rest_.begin()));
    const auto found = std::find(kLetters.begin(), kLetters.end(), letters);
    if (found == kLetters.end()) fail("one of F, B, I, W, SF, RF, SB, RB, R, U behind the stage");
    action.kind = static_cast<Kind>(found - kLetters.begin());
    rest_.remove_prefix(letters.size());
    if (action.kind == Kind::update) {
      if (!rest_.empty()) action.version = number("the version that the update makes, or nothing");
    } else if (action.kind != Kind::reduce) {
      action.micro_batch = number("a micro-batch's number");
    }
    if (!rest_.empty() && rest_.front() == '@' && computes(action.kind)) {
      rest_.remove_prefix(1);
      action.version = number("a version's number behind the @");
    }
    if (!rest_.empty()) fail("nothing more");
    return action;
  }

 private:
  int number(const char* what) {
    int value = 0;
    const auto parsed = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (parsed.ec != std::errc() || value < 0 || value > kLargest)
      fail(fmt::format("{} from 0 to {}", what, kLargest));
    rest_.remove_prefix(static_cast<size_t>(parsed.ptr - rest_.data()));
    return value;
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw InputError("schedule", "{}: \"{}\": expected {}{}; actions look like 2F0, 2SB0, 2F0@3, 2R or 2U4",
                     place_, std::string(text_.substr(0, 40)), expected,
                     rest_.empty() ? ", found the end" : fmt::format(", found \"{}\"", rest_.substr(0, 40)));
  }

  std::string_view text_, rest_;
  const std::string& place_;
};

bool separates(char c) {
  return c == ' ' || c == '\t' || c == ',' || c == '\r';
}

std::vector<std::string_view> words_of(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  while (true) {
    while (!line.empty() && separates(line.front())) line.remove_prefix(1);
    if (line.empty()) return words;
    const auto end = std::find_if(line.begin(), line.end(), separates);
    words.push_back(line.substr(0, static_cast<size_t>(end - line.begin())));
    line.remove_prefix(words.back().size());
  }
}

/// The largest result of `of` over the actions; -1 without actions.
template <class Of>
int largest(const std::vector<Row>& rows, Of of) {
  int most = -1;
  for (const Row& row : rows)
    for (const Action& action : row) most = std::max(most, of(action));
  return most;
}

template <class Is>
bool any(const std::vector<Row>& rows, Is is) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return std::any_of(row.begin(), row.end(), is); });
}

}  // namespace

bool computes(Kind kind) {
  return kind <= Kind::weight_gradient;
}

bool gives_gradient(Kind kind) {
  return kind == Kind::backward || kind == Kind::input_gradient;
}

bool ends_micro_batch(Kind kind) {
  return kind == Kind::backward || kind == Kind::weight_gradient;
}

bool is_message(Kind kind) {
  return kind >= Kind::send_forward && kind <= Kind::receive_backward;
}

std::string to_text(const Action& action) {
  std::string text = fmt::format("{}{}", action.stage, letters_of(action.kind));
  if (action.micro_batch >= 0) text += std::to_string(action.micro_batch);
  if (action.version >= 0) text += (action.kind == Kind::update ? "" : "@") + std::to_string(action.version);
  return text;
}

int Schedule::stages() const {
  return 1 + largest(rows, [](const Action& action) { return action.stage; });
}

int Schedule::micro_batches() const {
  return 1 + largest(rows, [](const Action& action) { return action.micro_batch; });
}

bool Schedule::has_messages() const {
  return any(rows, [](const Action& action) { return is_message(action.kind); });
}

bool Schedule::asynchronous() const {
  return any(rows, [](const Action& action) { return action.version >= 0; });
}

std::string Schedule::place(int rank) const {
  const auto row = static_cast<size_t>(rank);
  return row < lines.size() ? fmt::format("{}:{}, rank {}", name, lines[row], rank)
                            : fmt::format("{}, rank {}", name, rank);
}

Schedule parse_schedule(std::string_view text, const std::string& name) {
  Schedule schedule;
  schedule.name = name;
  int line = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::vector<std::string_view> words = words_of(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line;
    if (words.empty()) continue;
    Row row;
    const std::string place = fmt::format("{}:{}", name, line);
    if (words.size() > 1 || words.front() != "-")
      for (const std::string_view word : words) row.push_back(ActionReader(word, place).read());
    schedule.rows.push_back(std::move(row));
    schedule.lines.push_back(line);
  }
  if (schedule.stages() == 0)
    throw InputError("schedule", "{}: there is no action in it; expected one row a rank, such as 0F0 0B0",
                     name);
  return schedule;
}

Schedule read_schedule(const std::string& path) {
  return parse_schedule(read_text_or_pipe(path, "a schedule"), path);
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (const Row& row : schedule.rows) {
    for (size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : " ") + to_text(row[i]);
    text += row.empty() ? "-\n" : "\n";
  }
  return text;
}

}  // namespace funicular::pipeline
