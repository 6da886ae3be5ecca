#include "funicular/format/family/camembert.h"

#include "funicular/format/family/roberta.h"

namespace funicular::format {

Family camembert_family() {
  Family family = roberta_family();
  family.model_type = "camembert";
  family.title = "CamemBERT";
  family.classes = "Camembert";
  family.tokenizer = TokenizerRules::file;
  family.defaults.encoder.vocabulary = 30522;
  return family;
}

}  // namespace funicular::format
