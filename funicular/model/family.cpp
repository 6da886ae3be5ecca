#include "funicular/model/family.h"

#include "funicular/base/error.h"
#include "funicular/model/bert.h"
#include "funicular/model/electra.h"
#include "funicular/model/roberta.h"

namespace funicular::model {

std::string Family::class_of(const std::string& bert_class) const {
  constexpr std::string_view kBert = "Bert";
  return bert_class.starts_with(kBert) ? classes + bert_class.substr(kBert.size()) : bert_class;
}

std::string Family::classifier_dense() const {
  return classifier.pools ? prefix + classifier.dense : classifier.dense;
}

const std::vector<Family>& families() {
  static const std::vector<Family> all = {bert_family(), roberta_family(), electra_family()};
  return all;
}

const Family& family_of(const format::BertConfig& config) {
  std::string names;
  for (const Family& family : families()) {
    if (family.model_type == config.model_type) return family;
    names += (names.empty() ? "" : ", ") + family.model_type;
  }
  throw InputError("model", "models of the family \"{}\" cannot be built; expected one of {}",
                   config.model_type, names);
}

}  // namespace funicular::model
