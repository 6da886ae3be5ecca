#include "funicular/text/tokenizer.h"

#include <algorithm>

namespace funicular::text {

TokenizedText Tokenizer::tokenize(std::string_view utf8) const {
  TokenizedText result;
  tokenize(utf8, result);
  return result;
}

int64_t Tokenizer::id_limit() const {
  int64_t limit = size();
  for (const AddedToken& token : added_tokens()) limit = std::max(limit, int64_t{token.id} + 1);
  return limit;
}

}  // namespace funicular::text
