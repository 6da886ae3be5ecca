#include "funicular/format/sentencepiece_model.h"

#include <cmath>
#include <cstring>

#include "funicular/base/error.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/utf8.h"

namespace funicular::format {
namespace {

/// One field of a message.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;      ///< of a number
  std::string_view bytes;  ///< of a text or a message, or the bytes of a fixed number
};

/// Reads the fields of a message in order.
class MessageReader {
 public:
  MessageReader(std::string_view bytes, const std::string& origin) : rest_(bytes), origin_(origin) {}

  /// False at the end. Throws InputError where the message is cut or no field begins.
  bool next(Field& field) {
    if (rest_.empty()) return false;
    const uint64_t key = read_varint();
    field = {.number = static_cast<uint32_t>(key >> 3), .value = 0, .bytes = {}};
    if (key >> 3 == 0 || key >> 3 > kLastNumber) refuse("has a field without a number");
    switch (key & 7) {
      case 0:
        field.value = read_varint();
        break;
      case 1:
        field.bytes = read_bytes(8);
        break;
      case 2:
        field.bytes = read_bytes(read_varint());
        break;
      case 5:
        field.bytes = read_bytes(4);
        break;
      default:
        refuse("has a field of an unknown kind");
    }
    return true;
  }

 private:
  static constexpr uint64_t kLastNumber = (uint64_t{1} << 29) - 1;

  [[noreturn]] void refuse(const char* what) const {
    throw InputError(
        text::kTokenizerComponent,
        "{}: is no SentencePiece model, or was cut: it {}; copy the file again, or give the folder "
        "a tokenizer.json",
        origin_, what);
  }

  uint64_t read_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) refuse("ends within a number");
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    refuse("has a number of more than 64 bits");
  }

  std::string_view read_bytes(uint64_t size) {
    if (size > rest_.size()) refuse("ends within a field");
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
  const std::string& origin_;
};

SentencePieceModel::Piece parse_piece(std::string_view bytes, size_t id, const std::string& origin) {
  SentencePieceModel::Piece piece;
  MessageReader reader(bytes, origin);
  for (Field field; reader.next(field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2 && field.bytes.size() == sizeof(float)) {
      float score = 0;
      std::memcpy(&score, field.bytes.data(), sizeof score);
      piece.score = score;
    }
    if (field.number != 3) continue;
    if (field.value < 1 || field.value > 6)
      throw InputError(text::kTokenizerComponent, "{}: piece {} has the type {}: expected 1 to 6", origin, id,
                       field.value);
    piece.type = static_cast<SentencePieceModel::PieceType>(field.value);
  }
  if (piece.text.empty() || !text::is_valid_utf8(piece.text) || !std::isfinite(piece.score))
    throw InputError(text::kTokenizerComponent,
                     "{}: piece {} has no text in UTF-8 or no finite score; copy the file again", origin, id);
  return piece;
}

void parse_trainer(std::string_view bytes, const std::string& origin, SentencePieceModel& model) {
  MessageReader reader(bytes, origin);
  for (Field field; reader.next(field);) {
    if (field.number == 3) {
      if (field.value < 1 || field.value > 4)
        throw InputError(text::kTokenizerComponent, "{}: the model has the type {}: expected 1 to 4", origin,
                         field.value);
      model.type = static_cast<SentencePieceModel::Type>(field.value);
    } else if (field.number == 24) {
      model.treat_whitespace_as_suffix = field.value != 0;
    } else if (field.number == 35) {
      model.byte_fallback = field.value != 0;
    } else if (field.number == 40) {
      model.unknown_id = static_cast<int32_t>(field.value);
    }
  }
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& origin) {
  SentencePieceModel model;
  MessageReader reader(bytes, origin);
  for (Field field; reader.next(field);) {
    if (field.number == 1) model.pieces.push_back(parse_piece(field.bytes, model.pieces.size(), origin));
    if (field.number == 2) parse_trainer(field.bytes, origin, model);
    if (field.number != 3) continue;
    MessageReader normalizer(field.bytes, origin);
    for (Field part; normalizer.next(part);) {
      if (part.number == 2) model.character_map = part.bytes;
      if (part.number == 3) model.add_dummy_prefix = part.value != 0;
      if (part.number == 4) model.remove_extra_whitespaces = part.value != 0;
      if (part.number == 5) model.escape_whitespaces = part.value != 0;
    }
  }
  if (model.pieces.empty())
    throw InputError(text::kTokenizerComponent,
                     "{}: is no SentencePiece model: it has no pieces; expected the file that "
                     "SentencePieceTrainer writes, such as sentencepiece.bpe.model",
                     origin);
  return model;
}

}  // namespace funicular::format
