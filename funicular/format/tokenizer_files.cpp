#include "funicular/format/tokenizer_files.h"

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/log.h"
#include "funicular/format/byte_bpe_files.h"
#include "funicular/format/piece_files.h"
#include "funicular/format/tokenizer_document.h"
#include "funicular/format/tokenizer_json.h"
#include "funicular/format/word_piece_files.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {
namespace {

template <class T>
std::unique_ptr<text::Tokenizer> own(T tokenizer) {
  return std::make_unique<T>(std::move(tokenizer));
}

std::unique_ptr<text::Tokenizer> read_tokenizer_json(const fs::path& path) {
  const std::string origin = path.string();
  TokenizerDocument document = read_tokenizer_document(path);
  const Json& root = document.root;
  if (!root.is_object())
    throw InputError(text::kTokenizerComponent, "{}: expected an object, found {}", origin, root.type_name());
  const auto model = root.find("model");
  // The first files of GPT-2 and RoBERTa name no type.
  if (model != root.end() && model->is_object() && !model->contains("type") && model->contains("merges"))
    return own(read_byte_bpe(std::move(document), path));
  const std::string type = found_type(part_of(root, "model", {"WordPiece", "BPE", "Unigram"}, origin,
                                              "tokenizers of BERT, GPT-2, RoBERTa, XLM-R"));
  if (type == "WordPiece") return own(read_word_piece(std::move(document), path));
  if (type == "Unigram" || is_character_bpe(root)) return own(read_pieces(std::move(document), path));
  return own(read_byte_bpe(std::move(document), path));
}

std::unique_ptr<text::Tokenizer> read_file_of_any_kind(const fs::path& path) {
  if (path.filename() == "vocab.json" || path.filename() == "merges.txt")
    return own(read_byte_bpe_vocabulary(path.parent_path()));
  if (path.extension() == ".model") return own(read_sentencepiece(path));
  return path.extension() == ".json" ? read_tokenizer_json(path) : own(read_word_piece_vocabulary(path));
}

// Reads one of the files of a tokenizer, by its name. An error of the tokenizer itself names no file, so this adds
// the name.
std::unique_ptr<text::Tokenizer> read_one(const fs::path& path) {
  try {
    return read_file_of_any_kind(path);
  } catch (const InputError& error) {
    std::string message = error.what();
    const bool is_damaged = message.starts_with("[json]");
    if (is_damaged) message.append("; ").append(kCopyAgain);
    // vocab.json is read together with merges.txt, which a message may name instead.
    bool names_file = message.find(path.filename().string()) != message.npos;
    for (const char* const name : {"merges.txt", "tokenizer_config.json", "config.json",
                                   "special_tokens_map.json", "added_tokens.json"})
      names_file |= message.find(name) != message.npos;
    if (names_file && !is_damaged) throw;
    const size_t begin = message.find("] ");
    throw InputError(text::kTokenizerComponent, "{}{}", names_file ? std::string() : path.string() + ": ",
                     message.substr(begin == message.npos ? 0 : begin + 2));
  }
}

/// The file that holds the tokenizer of a folder; empty if there is none. If several kinds are there, the class
/// decides, and a warning names the files.
std::string chosen_file(const fs::path& folder) {
  if (fs::exists(folder / "tokenizer.json")) return "tokenizer.json";
  std::vector<std::string> found;
  for (const char* const name : {"vocab.txt", "vocab.json"})
    if (fs::exists(folder / name)) found.push_back(name);
  const std::vector<std::string> models = sentencepiece_names(folder);
  if (models.empty() || found.size() + models.size() < 2) {
    found.insert(found.end(), models.begin(), models.end());
    return found.empty() ? "" : found.front();
  }
  found.insert(found.end(), models.begin(), models.end());
  const std::string of_class = sentencepiece_of_class(folder);
  std::string name = of_class.empty() ? found.front() : of_class;
  for (const std::string& other : found)
    if (other != name)
      log::warning("{}: there are {} and {}; {} is read, because {}", folder.string(), name, other, name,
                   of_class.empty() ? "no file names a class with a SentencePiece model"
                                    : "it belongs to the tokenizer class");
  return name;
}

}  // namespace

bool has_tokenizer(const fs::path& folder) {
  return fs::exists(folder / "tokenizer.json") || fs::exists(folder / "vocab.txt") ||
         fs::exists(folder / "vocab.json") || !sentencepiece_names(folder).empty();
}

std::unique_ptr<text::Tokenizer> load_tokenizer(const fs::path& path) {
  if (!fs::is_directory(path)) {
    if (!fs::exists(path))
      throw InputError(text::kTokenizerComponent, "{}: no such file or folder", path.string());
    return read_one(path);
  }
  if (const std::string name = chosen_file(path); !name.empty()) return read_one(path / name);
  throw InputError(
      text::kTokenizerComponent,
      "{}: no tokenizer in this folder; expected tokenizer.json or vocab.txt, vocab.json and merges.txt, "
      "or a SentencePiece model such as sentencepiece.bpe.model",
      path.string());
}

void save_tokenizer(const fs::path& folder, const text::Tokenizer& tokenizer, int model_max_length) {
  if (const auto* word_piece = dynamic_cast<const text::WordPiece*>(&tokenizer))
    return write_word_piece(folder, *word_piece, model_max_length);
  if (const auto* bpe = dynamic_cast<const text::ByteBpe*>(&tokenizer))
    return write_byte_bpe(folder, *bpe, model_max_length);
  if (const auto* pieces = dynamic_cast<const text::PieceTokenizer*>(&tokenizer))
    return write_pieces(folder, *pieces, model_max_length);
  throw RunError(text::kTokenizerComponent, "{}: a tokenizer of the type {} cannot be written",
                 folder.string(), tokenizer.type());
}

}  // namespace funicular::format
