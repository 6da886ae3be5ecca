#include "funicular/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fmt/format.h>

namespace funicular {

uint64_t hash_bytes(const void* data, size_t size) {
  return XXH3_64bits(data, size);
}

std::string hash_text(uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

struct StreamHash::State {
  XXH3_state_t xxh;
};

StreamHash::StreamHash() : state_(new State) {
  XXH3_64bits_reset(&state_->xxh);
}

StreamHash::~StreamHash() = default;

void StreamHash::update(const void* data, size_t size) {
  XXH3_64bits_update(&state_->xxh, data, size);
}

uint64_t StreamHash::digest() const {
  return XXH3_64bits_digest(&state_->xxh);
}

uint64_t hash_file(const fs::path& path) {
  const MappedFile file(path);
  file.advise_sequential();
  return hash_bytes(file.bytes().data(), file.bytes().size());
}

}  // namespace funicular
