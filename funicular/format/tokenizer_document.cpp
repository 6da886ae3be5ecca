#include "funicular/format/tokenizer_document.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/mapped_text.h"
#include "funicular/format/tokenizer_json.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

namespace {

/// Reads a number as `tokenizers` reads it: its digits become a double, and so does the power of ten. The quotient is
/// not always the nearest double, and decides between equal sums of scores. `nearest` stands for numbers of more than
/// 19 digits.
double number_of_peer(const std::string& text, double nearest) {
  uint64_t digits = 0;
  int exponent = 0, count = 0;
  bool point = false;
  size_t at = text.starts_with('-') ? 1 : 0;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      point = true;
      continue;
    }
    digits = digits * 10 + static_cast<uint64_t>(text[at] - '0');
    exponent -= point;
    if (++count > 19) return nearest;
  }
  if (at < text.size()) exponent += std::atoi(text.c_str() + at + 1);
  constexpr int kLargest = 308;
  if (exponent > kLargest || exponent < -kLargest) return nearest;
  const double power = std::strtod(("1e" + std::to_string(std::abs(exponent))).c_str(), nullptr);
  const double value =
      exponent < 0 ? static_cast<double>(digits) / power : static_cast<double>(digits) * power;
  return text.starts_with('-') ? -value : value;
}

/// Makes JSON values of all but model.vocab. Gives up (false) where anything is unusual: the text is then read again in the
/// ordinary way, which says what is wrong.
class DocumentReader final : public nlohmann::json_sax<Json> {
 public:
  TokenizerDocument take() { return {std::move(root_), std::move(vocabulary_)}; }

  bool null() override { return put(nullptr) != nullptr; }
  bool boolean(bool value) override { return put(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return put(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& text) override {
    return put(number_of_peer(text, value)) != nullptr;
  }
  bool string(string_t& value) override { return put(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_vocabulary_) return put(value) != nullptr;
    entries_.emplace_back(std::move(key_), value);
    return true;
  }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool start_object(size_t) override {
    const bool vocabulary = open_.size() == 2 && open_[1].name == "model" && key_ == "vocab";
    if (!vocabulary) return open(Json::object());
    if (!vocabulary_.empty() || put(Json::object()) == nullptr) return false;
    return in_vocabulary_ = true;
  }
  bool end_object() override {
    if (std::exchange(in_vocabulary_, false)) return sort_vocabulary();
    open_.pop_back();
    return true;
  }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  struct Open {
    Json* value;
    std::string name;  ///< its key
  };

  /// Where it is now, valid as long as what holds it gets nothing more; null where there is no place for it.
  Json* put(Json value) {
    if (in_vocabulary_) return nullptr;
    if (open_.empty()) return &(root_ = std::move(value));
    Json& holder = *open_.back().value;
    if (holder.is_object()) return &(holder[key_] = std::move(value));
    holder.push_back(std::move(value));
    return &holder.back();
  }

  bool open(Json value) {
    if (open_.size() == kMaximumJsonDepth) return false;
    Json* const place = put(std::move(value));
    if (place) open_.push_back({place, key_});
    return place != nullptr;
  }

  bool sort_vocabulary() {
    vocabulary_.resize(entries_.size());
    std::vector<bool> taken(entries_.size());
    for (auto& [token, id] : entries_) {
      if (id >= entries_.size() || taken[id]) return false;
      taken[id] = true;
      vocabulary_[id] = std::move(token);
    }
    return true;
  }

  Json root_;
  std::vector<Open> open_;
  std::string key_;
  bool in_vocabulary_ = false;
  std::vector<std::pair<std::string, uint64_t>> entries_;
  std::vector<std::string> vocabulary_;
};

}  // namespace

TokenizerDocument read_tokenizer_document(const fs::path& path) {
  const std::string text = read_text(path, "a tokeniser in JSON");
  DocumentReader reader;
  if (Json::sax_parse(text.begin(), text.end(), &reader)) return reader.take();
  return {parse_json(text, path.string()), {}};
}

std::vector<std::string> take_vocabulary(TokenizerDocument& document, const std::string& origin) {
  if (!document.vocabulary.empty()) return std::move(document.vocabulary);
  const Json& model = document.root["model"];
  const auto ids = model.find("vocab");
  if (ids == model.end() || !ids->is_object())
    throw InputError(text::kTokenizerComponent, "{}: the model has no object \"vocab\" of tokens and ids",
                     origin);
  return read_vocabulary(*ids, origin);
}

}  // namespace funicular::format
