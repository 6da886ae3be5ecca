#pragma once
// Metrics of tagged words: by tag and, if the tags name entities, by entity.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/core/metrics.h"

namespace funicular::objective {

/// Words [begin, end) of a text, and what they are.
struct Entity {
  int64_t begin = 0, end = 0;
  std::string_view type;
  auto operator<=>(const Entity&) const = default;
};

/// How tags of entities are written: a letter and a type ("B-PER", "b-per", "B_PER"; "B" alone has the type "_"), or
/// a type and a letter ("PER-B"). O (or o) is outside of all entities. The known letters come from IOB1, IOB2, IOE,
/// IOBES, BILOU and BMEWO.
enum class TagScheme { none, prefix, suffix };

/// The scheme of all these names; none: one of them is no entity tag, or all are O. Letters without a type are entity
/// tags only if B or I is among them, and lower-case letters only if o or O is, too.
TagScheme tag_scheme(std::span<const std::string> names);

/// Whether tag_scheme(names) is not none.
bool are_entity_tags(std::span<const std::string> names);

/// If some of the names are entity tags with a type: the names that are not.
std::vector<std::string> strangers_among_entity_tags(std::span<const std::string> names);

/// Finds the entities of one text's tags as seqeval does by default, by the rules of the CoNLL shared tasks'
/// conlleval. TagScheme::suffix corresponds to seqeval's suffix=True. Lower-case letters are read as upper case, L as
/// E, U and W as S. M (BMES) is treated as in seqeval: it continues its type, and does not end before B or S of this
/// type. The types are views into the tags.
std::vector<Entity> entities_of(std::span<const std::string_view> tags, TagScheme scheme = TagScheme::prefix);

/// accuracy and macro_f1 (over the words' tags). For entity tags, f1, precision and recall come first; an entity is
/// correct if its words and its type are.
std::vector<std::string> tag_metric_names(std::span<const std::string> tags);

struct EntityCounts {
  int64_t right = 0, predicted = 0, there = 0;
  double precision() const {
    return predicted > 0 ? static_cast<double>(right) / static_cast<double>(predicted) : 0;
  }
  double recall() const { return there > 0 ? static_cast<double>(right) / static_cast<double>(there) : 0; }
  double f1() const {
    return predicted + there > 0 ? 2.0 * static_cast<double>(right) / static_cast<double>(predicted + there)
                                 : 0;
  }
};

/// Metrics of the outputs "logits" [R, tags], "labels" [R] and "samples" [R], the sample of each word. The words are
/// in the order of the text.
class TagMetrics final : public Metrics {
 public:
  /// `tags`: the names, by number.
  explicit TagMetrics(std::vector<std::string> tags);
  void start() override;
  void add(const TensorMap& outputs) override;
  std::map<std::string, double> finish(double loss) override;
  /// {"TYPE": {"precision": …, "recall": …, "f1": …, "support": …}, …} for the evaluated words: by type for entity
  /// tags, else by tag.
  OrderedJson classes() const;

 private:
  void add_entities(std::span<const int64_t> predicted, std::span<const int64_t> truth);
  std::vector<std::string_view> names_of(std::span<const int64_t> numbers) const;

  std::vector<std::string> tags_;
  TagScheme scheme_;
  std::vector<int64_t> predicted_, truth_;
  std::map<std::string, EntityCounts> types_;
};

}  // namespace funicular::objective
