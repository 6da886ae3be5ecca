#include "funicular/objective/tag_metrics.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

namespace {

constexpr std::string_view kLetters = "BIESLUMW";
constexpr std::string_view kUntyped = "_";

struct Tag {
  char place = 'O';  ///< O, B, I, E, S or M
  std::string_view type = kUntyped;
};

char to_upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

bool is_one_of(char place, std::string_view places) {
  return places.find(place) != places.npos;
}

bool is_outside(std::string_view name) {
  return name == "O" || name == "o";
}

bool is_delimiter(char c) {
  return c == '-' || c == '_';
}

bool has_prefix(std::string_view name) {
  return name.size() > 2 && is_delimiter(name[1]) && is_one_of(to_upper(name[0]), kLetters);
}

bool has_suffix(std::string_view name) {
  return name.size() > 2 && name[name.size() - 2] == '-' && is_one_of(name.back(), kLetters);
}

bool is_letter(std::string_view name) {
  return name.size() == 1 && is_one_of(to_upper(name[0]), kLetters);
}

Tag parse_tag(std::string_view name, TagScheme scheme) {
  Tag tag;
  if (name.empty() || is_outside(name)) return tag;
  tag.place = to_upper(scheme == TagScheme::suffix ? name.back() : name.front());
  if (tag.place == 'L') tag.place = 'E';
  if (is_one_of(tag.place, "UW")) tag.place = 'S';
  if (name.size() > 2)
    tag.type = scheme == TagScheme::suffix ? name.substr(0, name.size() - 2) : name.substr(2);
  return tag;
}

/// Whether an entity ends between two words' tags.
bool ends(const Tag& before, const Tag& now) {
  if (before.place == 'O') return false;
  if (is_one_of(before.place, "ES") || before.type != now.type) return true;
  return before.place != 'M' && is_one_of(now.place, "BSO");
}

/// Whether an entity begins there.
bool begins(const Tag& before, const Tag& now) {
  if (now.place == 'O') return false;
  if (is_one_of(now.place, "BS") || before.type != now.type) return true;
  return now.place != 'M' && is_one_of(before.place, "ESO");
}

}  // namespace

TagScheme tag_scheme(std::span<const std::string> names) {
  bool prefixes = true, suffixes = true, typed = false, small = false, outside = false, begins = false;
  for (const std::string& name : names) {
    if (is_outside(name)) {
      outside = true;
      continue;
    }
    prefixes = prefixes && (has_prefix(name) || is_letter(name));
    suffixes = suffixes && has_suffix(name);
    typed = typed || has_prefix(name);
    small = small || (is_letter(name) && name[0] >= 'a');
    begins = begins || (is_letter(name) && is_one_of(to_upper(name[0]), "BI"));
  }
  if (names.empty() || (names.size() == 1 && outside)) return TagScheme::none;
  if (prefixes && (typed || (begins && (outside || !small)))) return TagScheme::prefix;
  return suffixes ? TagScheme::suffix : TagScheme::none;
}

bool are_entity_tags(std::span<const std::string> names) {
  return tag_scheme(names) != TagScheme::none;
}

std::vector<std::string> strangers_among_entity_tags(std::span<const std::string> names) {
  std::vector<std::string> strangers;
  for (const std::string& name : names)
    if (!is_outside(name) && !has_prefix(name)) strangers.push_back(name);
  const bool any = std::any_of(names.begin(), names.end(), has_prefix);
  if (!any || are_entity_tags(names)) strangers.clear();
  return strangers;
}

std::vector<Entity> entities_of(std::span<const std::string_view> tags, TagScheme scheme) {
  std::vector<Entity> found;
  Tag before;
  int64_t begin = 0;
  const auto count = static_cast<int64_t>(tags.size());
  for (int64_t i = 0; i <= count; ++i) {
    const Tag now = i < count ? parse_tag(tags[static_cast<size_t>(i)], scheme) : Tag();
    if (ends(before, now)) found.push_back({begin, i, before.type});
    if (begins(before, now)) begin = i;
    before = now;
  }
  return found;
}

std::vector<std::string> tag_metric_names(std::span<const std::string> tags) {
  if (are_entity_tags(tags)) return {"f1", "precision", "recall", "accuracy", "macro_f1"};
  return {"accuracy", "macro_f1"};
}

TagMetrics::TagMetrics(std::vector<std::string> tags) : tags_(std::move(tags)), scheme_(tag_scheme(tags_)) {}

void TagMetrics::start() {
  predicted_.clear();
  truth_.clear();
  types_.clear();
}

void TagMetrics::add(const TensorMap& outputs) {
  const auto on_host = [&](const char* name) {
    const auto found = outputs.find(name);
    if (found == outputs.end())
      throw InputError("metrics", "the model gives no {}; expected a tagger's outputs", name);
    return found->second.to(at::kCPU).contiguous();
  };
  const at::Tensor logits = on_host("logits"), labels = on_host("labels"), samples = on_host("samples");
  if (logits.size(1) != static_cast<int64_t>(tags_.size()))
    throw InputError("metrics", "the model gives {} tags, but {} have names", logits.size(1), tags_.size());
  const at::Tensor best = logits.argmax(1).contiguous();
  const std::span predicted(best.const_data_ptr<int64_t>(), static_cast<size_t>(best.numel()));
  const std::span truth(labels.const_data_ptr<int64_t>(), static_cast<size_t>(labels.numel()));
  const std::span text(samples.const_data_ptr<int64_t>(), static_cast<size_t>(samples.numel()));
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = begin + 1;
    while (end < text.size() && text[end] == text[begin]) ++end;
    if (scheme_ != TagScheme::none)
      add_entities(predicted.subspan(begin, end - begin), truth.subspan(begin, end - begin));
  }
  predicted_.insert(predicted_.end(), predicted.begin(), predicted.end());
  truth_.insert(truth_.end(), truth.begin(), truth.end());
}

std::vector<std::string_view> TagMetrics::names_of(std::span<const int64_t> numbers) const {
  std::vector<std::string_view> names;
  for (const int64_t number : numbers) names.emplace_back(tags_.at(static_cast<size_t>(number)));
  return names;
}

void TagMetrics::add_entities(std::span<const int64_t> predicted, std::span<const int64_t> truth) {
  const std::vector<std::string_view> given = names_of(predicted), right = names_of(truth);
  const std::vector<Entity> found = entities_of(given, scheme_), there = entities_of(right, scheme_);
  for (const Entity& entity : found) {
    EntityCounts& counts = types_[std::string(entity.type)];
    ++counts.predicted;
    counts.right += std::count(there.begin(), there.end(), entity);
  }
  for (const Entity& entity : there) ++types_[std::string(entity.type)].there;
}

std::map<std::string, double> TagMetrics::finish(double) {
  std::map<std::string, double> result{{"accuracy", accuracy(predicted_, truth_)},
                                       {"macro_f1", macro_f1(predicted_, truth_)}};
  if (scheme_ == TagScheme::none) return result;
  EntityCounts all;
  for (const auto& [type, counts] : types_) {
    all.right += counts.right;
    all.predicted += counts.predicted;
    all.there += counts.there;
  }
  result["f1"] = all.f1();
  result["precision"] = all.precision();
  result["recall"] = all.recall();
  return result;
}

OrderedJson TagMetrics::classes() const {
  std::map<std::string, EntityCounts> counts = types_;
  if (scheme_ == TagScheme::none)
    for (size_t i = 0; i < truth_.size(); ++i) {
      ++counts[tags_.at(static_cast<size_t>(truth_[i]))].there;
      EntityCounts& given = counts[tags_.at(static_cast<size_t>(predicted_[i]))];
      ++given.predicted;
      given.right += predicted_[i] == truth_[i];
    }
  OrderedJson all = OrderedJson::object();
  for (const auto& [name, one] : counts)
    all[name] = {
        {"precision", one.precision()}, {"recall", one.recall()}, {"f1", one.f1()}, {"support", one.there}};
  return all;
}

}  // namespace funicular::objective
