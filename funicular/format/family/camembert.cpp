#include "funicular/format/family/camembert.h"

#include "funicular/format/family/xlm_roberta.h"

namespace funicular::format {

Family camembert_family() {
  Family family = xlm_roberta_family();
  family.model_type = "camembert";
  family.title = "CamemBERT";
  family.classes = "Camembert";
  return family;
}

}  // namespace funicular::format
