#include "funicular/format/family/xlm_roberta.h"

#include "funicular/format/family/roberta.h"

namespace funicular::format {

Family xlm_roberta_family() {
  Family family = roberta_family();
  family.model_type = "xlm-roberta";
  family.title = "XLM-RoBERTa";
  family.classes = "XLMRoberta";
  family.tokenizer = TokenizerRules::file;
  family.defaults.encoder.vocabulary = 30522;
  return family;
}

}  // namespace funicular::format
