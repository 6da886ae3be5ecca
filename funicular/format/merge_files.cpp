#include "funicular/format/merge_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "funicular/base/error.h"
#include "funicular/base/mapped_text.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

using text::Merge;

namespace {

/// Joins the parts of merges to tokens, by their texts.
class MergeReader {
 public:
  explicit MergeReader(const std::vector<std::string>& vocabulary) {
    ids_.reserve(vocabulary.size());
    for (size_t i = 0; i < vocabulary.size(); ++i) ids_.emplace(vocabulary[i], static_cast<int32_t>(i));
  }

  /// `place` names file and line for messages.
  Merge merge(std::string_view left, std::string_view right, const auto& place) const {
    const std::string result = std::string(left).append(right);
    const auto id = [&](std::string_view token) {
      const auto found = ids_.find(token);
      if (found == ids_.end())
        throw InputError(
            text::kTokenizerComponent,
            "{}: the merge of \"{}\" and \"{}\" needs the token \"{}\", which the vocabulary lacks; take "
            "the vocabulary and the merges of one tokenizer",
            place(), left, right, token);
      return found->second;
    };
    return {id(left), id(right), id(result)};
  }

  /// "a b".
  Merge merge(std::string_view line, const auto& place) const {
    const size_t blank = line.find(' ');
    if (blank == line.npos || line.find(' ', blank + 1) != line.npos)
      throw InputError(text::kTokenizerComponent,
                       "{}: expected two tokens with a blank between them, found \"{}\"", place(),
                       line.substr(0, 80));
    return merge(line.substr(0, blank), line.substr(blank + 1), place);
  }

 private:
  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace

std::vector<Merge> read_merges(const Json& model, const std::vector<std::string>& vocabulary,
                               const std::string& origin) {
  const auto list = model.find("merges");
  if (list == model.end() || !list->is_array())
    throw InputError(text::kTokenizerComponent, "{}: the model has no list \"merges\"", origin);
  const MergeReader reader(vocabulary);
  std::vector<Merge> merges;
  merges.reserve(list->size());
  for (const Json& item : *list) {
    const auto place = [&] { return fmt::format("{}: merge {}", origin, merges.size() + 1); };
    if (item.is_string()) {
      merges.push_back(reader.merge(item.get_ref<const std::string&>(), place));
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merges.push_back(
          reader.merge(item[0].get_ref<const std::string&>(), item[1].get_ref<const std::string&>(), place));
    } else {
      throw InputError(text::kTokenizerComponent, "{}: expected \"a b\" or [\"a\", \"b\"], found {}", place(),
                       item.dump().substr(0, 80));
    }
  }
  return merges;
}

std::vector<Merge> read_merges_file(const fs::path& path, const std::vector<std::string>& vocabulary) {
  const std::string contents = read_text(path, "the merges of byte-level BPE");
  const MergeReader reader(vocabulary);
  std::vector<Merge> merges;
  size_t number = 0;
  for (size_t begin = 0; begin < contents.size();) {
    const size_t end = std::min(contents.find('\n', begin), contents.size());
    std::string_view line = std::string_view(contents).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    merges.push_back(reader.merge(line, [&] { return fmt::format("{}:{}", path.string(), number); }));
  }
  return merges;
}

OrderedJson merges_json(const std::vector<Merge>& merges, const std::vector<std::string>& vocabulary) {
  const auto token = [&](int32_t id) -> const std::string& { return vocabulary[static_cast<size_t>(id)]; };
  const bool in_pairs = std::any_of(merges.begin(), merges.end(), [&](const Merge& merge) {
    return token(merge.result).find(' ') != std::string::npos;
  });
  OrderedJson list = OrderedJson::array();
  for (const Merge& merge : merges) {
    if (in_pairs)
      list.push_back({token(merge.left), token(merge.right)});
    else
      list.push_back(token(merge.left) + " " + token(merge.right));
  }
  return list;
}

}  // namespace funicular::format
