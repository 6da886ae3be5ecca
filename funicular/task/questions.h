#pragma once
// Questions about contexts and their answers, in the JSON form of SQuAD (versions 1.1 and 2.0) and CMRC2018.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/row_source.h"
#include "funicular/format/bad_rows.h"
#include "funicular/objective/spans.h"
#include "funicular/task/row_input.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

struct Question {
  std::string id, text;  ///< the text without white space before it
  size_t context = 0;    ///< index in QuestionFile::contexts
  bool impossible = false;
  std::vector<std::string> answers = {};  ///< as the file has them
  text::CharacterRange place = {-1, -1};  ///< of the first answer that occurs in the context; -1: none does
  uint64_t number = 0;                    ///< of the question in the file, from 0
  bool moved = false;                     ///< `place` is not where answer_start says
  std::vector<std::string> kept = {};     ///< values of the kept keys, as JSON
};

struct QuestionFile {
  std::vector<std::string> contexts;
  std::vector<Question> questions;
  int64_t moved = 0;  ///< answers that occur in the context, but not at answer_start
  int64_t lost = 0;   ///< questions without an answer that occurs in the context
  bool has_impossible = false;
  bool chinese =
      false;  ///< more than half of the contexts' characters are Chinese; of all the file's contexts

  const std::string& context_of(const Question& question) const { return contexts[question.context]; }
  /// Leaves out all questions for which `keeps` is false.
  void keep_only(const std::function<bool(const Question&)>& keeps);
  /// Sets `moved`, `lost` and `has_impossible` from the questions.
  void count();
};

/// Reads a file. `labelled` false: answers are not read. `bad_rows`: null makes a bad question an error. `keep`: keys
/// of a question, its paragraph or its article, for Question::kept; the nearest one counts, and a missing one is null.
/// Throws InputError naming file and place ("data[0].paragraphs[2].qas[1]"), and for a key that the file has nowhere.
QuestionFile read_questions(const fs::path& file, bool labelled, format::BadRows* bad_rows,
                            const std::vector<std::string>& keep = {});

/// The rows (question, context) of a file; SourceRow::offset is the question's number. SourceRow::label tells for splits
/// whether the question has an answer; stores leave it out.
class QuestionSource final : public data::RowSource {
 public:
  QuestionSource(const fs::path& file, bool labelled, std::shared_ptr<format::BadRows> bad_rows);
  int columns() const override { return 2; }
  bool has_labels() const override { return false; }
  size_t pieces() const override;
  uint64_t piece_bytes(size_t piece) const override;
  uint64_t read(size_t piece, const data::RowSink& sink) const override;

 private:
  QuestionFile file_;
  uint64_t left_out_ = 0;
};

/// The questions of a file to answer: the texts of a row are question, context and id. The id is in each answer, also
/// if it is not among InputOptions::keep.
std::unique_ptr<RowInput> open_questions(const InputOptions& options, const Task& task);

/// Returns a question without its leading white space, as it is read.
std::string_view without_leading_space(std::string_view text);

/// The characters of a context from which each of its tokens comes.
std::vector<text::CharacterRange> token_places(const text::Tokenizer& tokenizer, std::string_view context);

/// The tokens of each question's answer. transformers' rule: from the last token that begins at or before the answer to
/// the first one that ends at or behind its end.
std::vector<objective::AnswerTokens> answer_tokens(const QuestionFile& file,
                                                   const text::Tokenizer& tokenizer);

/// Characters [begin, end) of a text in valid UTF-8.
std::string_view characters_of(std::string_view text, text::CharacterRange range);

}  // namespace funicular::task
