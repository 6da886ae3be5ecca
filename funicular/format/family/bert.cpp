#include "funicular/format/family/bert.h"

namespace funicular::format {

Family bert_family() {
  return {
      .model_type = "bert",
      .title = "BERT",
      .classes = "Bert",
      .prefix = "bert.",
      .classifier = {.dense = "pooler.dense", .output = "classifier", .pools = true, .activation = "tanh"},
      .pair_relation = "cls.seq_relationship"};
}

}  // namespace funicular::format
