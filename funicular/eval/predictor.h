#pragma once
// Prediction: rows of text in, classes with their probabilities out, in the same order.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/data/cut_rows.h"
#include "funicular/eval/row_share.h"
#include "funicular/format/row_stream.h"
#include "funicular/objective/classification.h"
#include "funicular/text/tokenizer.h"

namespace funicular::eval {

struct PredictorOptions {
  objective::SequenceOptions sequence;  ///< longer rows are truncated
  int64_t batch_tokens = 4096;          ///< tokens a forward pass at most; a longer row stands alone
  int64_t window =
      1024;  ///< rows read ahead and sorted by length, so that rows of a batch are alike; bounds the memory
  /// A text has any number of labels: each whose probability is at least its threshold.
  bool multi_label = false;
  std::vector<double> thresholds = {};  ///< one a label; empty: 0.5 for all
  bool regression = false;  ///< the model gives one number a text; there is one label, its name unused
};

struct Prediction {
  int64_t label = 0;                 ///< the most probable class
  float score = 0;                   ///< its probability; of regression the number itself
  std::vector<float> probabilities;  ///< of all classes, in the order of their numbers
  std::vector<int64_t> labels = {};  ///< of multi-label: those given, ascending
};

/// A text, or a pair of texts.
using TextRow = std::array<std::string, 2>;

/// Refers to the model and the tokeniser, which must outlive it. The model has a classification head.
class Predictor {
 public:
  /// `labels`: names of the classes. Throws InputError for a vocabulary without [CLS] or [SEP].
  Predictor(const Model& model, const text::Tokenizer& tokenizer, std::vector<std::string> labels,
            PredictorOptions options);

  /// Predictions for rows of `columns` (1 or 2) texts. Throws RunError where the model gives no finite
  /// number, and where an interrupt is requested (base/interrupt.h).
  std::vector<Prediction> predict(std::span<const TextRow> rows, int columns) const;

  /// {"label": …, "score": …, "probabilities": {…}} on one line, without a line end; of multi-label
  /// {"labels": […], "probabilities": {…}}, of regression {"value": …}.
  std::string to_json(const Prediction& prediction) const;

  struct Streamed {
    int64_t rows = 0;
    data::CutRows cut;    ///< rows longer than options.sequence.max_length
    int64_t tabs = 0;     ///< rows of one text that holds a tab: lines of a table, perhaps
    int64_t objects = 0;  ///< rows of one text that begin and end as JSON does
    int64_t textless =
        0;  ///< rows without a token: what is answered to them is what the model answers to nothing
    int64_t first_textless = -1;  ///< line of the first such row, from 1; -1: there is none
  };
  /// `columns`: of a row, 1, 2 for pairs, or more, which are joined into one text. Reads rows to the end and writes one JSON line
  /// each, window by window, those of all processes; a thread reads and tokenises a window while the one before is computed. A
  /// bad row, also one without the right number of columns, is refused with `origin` and its line (then the rows of the windows
  /// before are written), or where it is to be skipped answered by {"error": …}. Throws what the reader throws.
  Streamed stream(format::StreamRowReader& rows, int columns, std::string_view origin,
                  const std::function<void(std::string_view)>& write, const RowShare& share = {}) const;

 private:
  class TokenisedRows;
  TokenisedRows read_window(format::StreamRowReader& rows, int columns, std::string_view origin,
                            const RowShare& share) const;
  std::string answer(const TokenisedRows& window) const;
  void count_cut(const TokenisedRows& rows, data::CutRows& cut) const;
  std::vector<Prediction> predict(const TokenisedRows& rows) const;
  std::vector<Prediction> forward(std::span<const data::Sample> samples) const;
  Prediction to_prediction(const float* probabilities, int64_t classes) const;

  const Model& model_;
  const text::Tokenizer& tokenizer_;
  std::vector<std::string> label_keys_;  ///< as JSON
  PredictorOptions options_;
  objective::Classification objective_;
};

}  // namespace funicular::eval
