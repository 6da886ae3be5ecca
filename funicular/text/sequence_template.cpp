#include "funicular/text/sequence_template.h"

#include <utility>

#include "funicular/base/error.h"

namespace funicular::text {

SequenceTemplate::SequenceTemplate()
    : SequenceTemplate({Step::text(0, 0)}, {Step::text(0, 0), Step::text(1, 1)}) {}

SequenceTemplate::SequenceTemplate(std::vector<Step> single, std::vector<Step> pair)
    : steps_{std::move(single), std::move(pair)} {
  for (const int32_t columns : {1, 2}) {
    int32_t texts = 0;
    bool in_order = true;
    for (const Step& step : steps(columns))
      if (step.column >= 0) in_order &= step.column == texts++;
    if (!in_order || texts != columns)
      throw InputError("tokenizer", "a template of {} text{}: expected {} once, in this order", columns,
                       columns == 1 ? "" : "s", columns == 1 ? "$A" : "$A and $B");
    special_counts_[static_cast<size_t>(columns - 1)] = static_cast<int32_t>(steps(columns).size()) - columns;
  }
}

SequenceTemplate SequenceTemplate::bert(const std::string& cls_name, int32_t cls, const std::string& sep_name,
                                        int32_t sep) {
  SequenceTemplate result({Step::special(cls, 0), Step::text(0, 0), Step::special(sep, 0)},
                          {Step::special(cls, 0), Step::text(0, 0), Step::special(sep, 0), Step::text(1, 1),
                           Step::special(sep, 1)});
  if (cls < 0) result.missing_.push_back(cls_name);
  if (sep < 0) result.missing_.push_back(sep_name);
  return result;
}

size_t SequenceTemplate::index_of(int columns) {
  if (columns < 1 || columns > 2)
    throw InputError(
        "sequence",
        "a row has {} text columns; expected one or two, or an objective of one's own that puts them "
        "together",
        columns);
  return static_cast<size_t>(columns - 1);
}

}  // namespace funicular::text
