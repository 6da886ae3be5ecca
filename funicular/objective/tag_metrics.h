#pragma once
// How well words are tagged: tag by tag, and, if the tags name entities, entity by entity.

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

/// How tags of entities are written: a letter and a type ("B-PER", "b-per", "B_PER"; "B" alone has the type "_"), or a type
/// and a letter ("PER-B"). O (or o) is outside of all. The letters are those of IOB1, IOB2, IOE, IOBES, BILOU and BMEWO.
enum class TagScheme { none, prefix, suffix };

/// How all of these names are written; none: one of them is no tag of entities, or all are O. Letters without a type are tags
/// of entities where B or I is among them, and small ones where o or O is, too.
TagScheme tag_scheme(std::span<const std::string> names);

/// Whether their scheme is not none.
bool are_entity_tags(std::span<const std::string> names);

/// The names that are no tags of entities, where others of them are, with a type.
std::vector<std::string> strangers_among_entity_tags(std::span<const std::string> names);

/// The entities of one text's tags, those that seqeval finds by default (with `suffix` as its suffix=True): the rules of the CoNLL
/// shared tasks' conlleval. Small letters are read as large ones, L as E, U and W as S; M (BMES) is seqeval's: it continues
/// its type, and does not end where B or S of this type follows. The types are views into the tags.
std::vector<Entity> entities_of(std::span<const std::string_view> tags, TagScheme scheme = TagScheme::prefix);

/// accuracy and macro_f1 (of the words' tags); of entity tags first f1, precision and recall, where an entity is right if its
/// words and its type are.
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

/// Metrics of outputs "logits" [R, tags], "labels" [R] and "samples" [R], of words in the order of the text: which sample each is of.
class TagMetrics final : public Metrics {
 public:
  /// `tags`: the names, by number.
  explicit TagMetrics(std::vector<std::string> tags);
  void start() override;
  void add(const TensorMap& outputs) override;
  std::map<std::string, double> finish(double loss) override;
  /// {"TYPE": {"precision": …, "recall": …, "f1": …, "support": …}, …} of what was fed, of entities by type, else by tag.
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
