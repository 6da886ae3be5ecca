#include "funicular/objective/tag_metrics.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

namespace {

struct Tag {
  char place = 'O';  ///< O, B, I, E or S
  std::string_view type{};
};

Tag parse_tag(std::string_view name) {
  Tag tag;
  if (name.empty() || name == "O") return tag;
  tag.place = name.front() == 'L' ? 'E' : name.front() == 'U' ? 'S' : name.front();
  if (const size_t dash = name.find('-'); dash != name.npos) tag.type = name.substr(dash + 1);
  return tag;
}

bool is_one_of(char place, std::string_view places) {
  return places.find(place) != places.npos;
}

/// Whether an entity ends between two words' tags.
bool ends(const Tag& before, const Tag& now) {
  if (before.place == 'O') return false;
  return is_one_of(before.place, "ES") || is_one_of(now.place, "BSO") || before.type != now.type;
}

/// Whether one begins there.
bool begins(const Tag& before, const Tag& now) {
  if (now.place == 'O') return false;
  return is_one_of(now.place, "BS") || is_one_of(before.place, "ESO") || before.type != now.type;
}

}  // namespace

std::vector<Entity> entities_of(std::span<const std::string_view> tags) {
  std::vector<Entity> found;
  Tag before;
  int64_t begin = 0;
  const auto count = static_cast<int64_t>(tags.size());
  for (int64_t i = 0; i <= count; ++i) {
    const Tag now = i < count ? parse_tag(tags[static_cast<size_t>(i)]) : Tag();
    if (ends(before, now)) found.push_back({begin, i, before.type});
    if (begins(before, now)) begin = i;
    before = now;
  }
  return found;
}

bool are_entity_tags(std::span<const std::string> names) {
  bool any = false;
  for (const std::string& name : names) {
    if (name == "O") continue;
    if (name.size() < 3 || name[1] != '-' || !is_one_of(name[0], "BIESLU")) return false;
    any = true;
  }
  return any;
}

std::vector<std::string> tag_metric_names(std::span<const std::string> tags) {
  if (are_entity_tags(tags)) return {"f1", "precision", "recall", "accuracy", "macro_f1"};
  return {"accuracy", "macro_f1"};
}

TagMetrics::TagMetrics(std::vector<std::string> tags)
    : tags_(std::move(tags)), entities_(are_entity_tags(tags_)) {}

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
    if (entities_) add_entities(predicted.subspan(begin, end - begin), truth.subspan(begin, end - begin));
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
  const std::vector<Entity> found = entities_of(given), there = entities_of(right);
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
  if (!entities_) return result;
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
  if (!entities_)
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
