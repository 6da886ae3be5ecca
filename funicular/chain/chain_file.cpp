#include "funicular/chain/chain_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/mapped_text.h"
#include "funicular/base/toml_file.h"

namespace funicular::chain {

namespace {

constexpr int64_t kMostRanks = 1024;

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  std::vector<WrittenStep> steps(const toml::table& file) const {
    std::vector<std::pair<toml::source_position, WrittenStep>> found;
    for (const auto& [key, node] : file) {
      const toml::table* const table = node.as_table();
      if (!table)
        throw InputError(
            "chain",
            "{}: {} stands outside of the steps; expected tables only, one a step, such as [teacher]",
            origin(node), key.str());
      found.emplace_back(node.source().begin, step(std::string(key.str()), *table));
    }
    if (found.empty())
      throw InputError("chain", "{}: no step; expected tables such as [teacher] with command = \"finetune\"",
                       file_);
    // The table of a TOML file is sorted by its keys.
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first.line, a.first.column) < std::pair(b.first.line, b.first.column);
    });
    std::vector<WrittenStep> steps;
    for (auto& [place, one] : found) steps.push_back(std::move(one));
    return steps;
  }

 private:
  std::string origin(const toml::node& node) const {
    return fmt::format("{}:{}", file_, node.source().begin.line);
  }

  WrittenStep step(const std::string& name, const toml::table& table) const {
    WrittenStep step{.name = name, .origin = origin(table), .command = {}, .entries = {}};
    const auto is_plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_plain))
      throw InputError("chain", "{}: the name of a step has letters, digits, - and _, found \"{}\"",
                       step.origin, name);
    for (const auto& [key, node] : table) {
      if (key == "command")
        step.command = text(node, "command");
      else if (key == "ranks")
        step.ranks = ranks(node);
      else
        step.entries.push_back(entry(std::string(key.str()), node));
    }
    if (step.command.empty())
      throw InputError("chain", "{}: the step {} has no command; expected one such as command = \"finetune\"",
                       step.origin, name);
    return step;
  }

  std::string text(const toml::node& node, std::string_view key) const {
    if (const auto* found = node.as_string()) return found->get();
    throw InputError("chain", "{}: {} expects a text in quotes", origin(node), key);
  }

  int ranks(const toml::node& node) const {
    const auto* const found = node.as_integer();
    if (!found || found->get() < 1 || found->get() > kMostRanks)
      throw InputError("chain", "{}: ranks expects how many processes share the step, 1 to {}", origin(node),
                       kMostRanks);
    return static_cast<int>(found->get());
  }

  Entry entry(std::string key, const toml::node& node) const {
    Entry entry{.key = std::move(key), .values = {}, .origin = origin(node)};
    if (const auto* list = node.as_array()) {
      for (const toml::node& item : *list) entry.values.push_back(scalar(item, entry));
    } else {
      entry.values.push_back(scalar(node, entry));
    }
    return entry;
  }

  std::string scalar(const toml::node& node, const Entry& entry) const {
    if (const auto* word = node.as_string()) return word->get();
    if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
    if (const auto* whole = node.as_integer()) return fmt::to_string(whole->get());
    if (const auto* number = node.as_floating_point()) return fmt::to_string(number->get());
    throw InputError("chain", "{}: {} expects a text, a number, true or false, or a list of them",
                     entry.origin, entry.key);
  }

  std::string file_;
};

}  // namespace

std::vector<WrittenStep> read_chain_file(const fs::path& path) {
  return parse_chain(read_text(path, "a chain in TOML"), path.string());
}

std::vector<WrittenStep> parse_chain(std::string_view text, const std::string& file) {
  return Reader(file).steps(parse_toml(text, file, "chain"));
}

}  // namespace funicular::chain
