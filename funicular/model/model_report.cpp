#include "funicular/model/model_report.h"

#include "funicular/base/log.h"

namespace funicular::model {

void report_model(const Model& model, const format::ModelConfig& config) {
  log::info(
      "the model: {:.1f} million parameters, {} layers of {} heads, hidden size {}, feed-forward size {}, {} "
      "tokens, {} positions",
      static_cast<double>(model.parameter_count()) / 1e6, config.encoder.layers, config.encoder.heads,
      config.encoder.width, config.encoder.feed_forward.width, config.encoder.vocabulary,
      config.encoder.positions.rows);
}

}  // namespace funicular::model
