#include "funicular/base/hmac.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "funicular/base/error.h"

namespace funicular {

namespace {

constexpr size_t kBlockBytes = 64, kDigestBytes = 32;

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using Sha256State = std::array<uint32_t, 8>;

uint32_t read_big_endian(const char* bytes) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<unsigned char>(bytes[i]);
  return word;
}

void compress_block(Sha256State& state, const char* block) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t) w[t] = read_big_endian(block + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kRoundConstants[t] + w[t];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const Sha256State next{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += next[i];
}

}  // namespace

std::string sha256(std::string_view message) {
  // The first 32 bits of the fractional parts of the square roots of the first 8 primes.
  Sha256State state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const size_t whole = message.size() / kBlockBytes * kBlockBytes;
  for (size_t i = 0; i < whole; i += kBlockBytes) compress_block(state, message.data() + i);
  // The rest, a one bit, zeros, and the number of bits in the last 8 bytes of a block.
  std::string tail(message.substr(whole));
  tail += '\x80';
  while (tail.size() % kBlockBytes != kBlockBytes - 8) tail += '\0';
  const uint64_t bits = uint64_t{message.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) tail += static_cast<char>(bits >> shift);
  for (size_t i = 0; i < tail.size(); i += kBlockBytes) compress_block(state, tail.data() + i);
  std::string digest;
  for (const uint32_t word : state)
    for (int shift = 24; shift >= 0; shift -= 8) digest += static_cast<char>(word >> shift);
  return digest;
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  std::string block(key);
  if (block.size() > kBlockBytes) block = sha256(key);
  block.resize(kBlockBytes, '\0');
  std::string inner = block, outer = block;
  for (char& c : inner) c ^= 0x36;
  for (char& c : outer) c ^= 0x5c;
  return sha256(outer.append(sha256(inner.append(message))));
}

bool same_digest(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  // Volatile: or a compiler might leave the loop at the first difference.
  volatile unsigned char different = 0;
  for (size_t i = 0; i < a.size(); ++i) different = different | static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

std::string random_digest() {
  std::string digest(kDigestBytes, '\0');
  // Up to 256 bytes come whole, unless a signal comes while the generator is still being prepared.
  while (::getrandom(digest.data(), digest.size(), 0) != static_cast<ssize_t>(digest.size()))
    if (errno != EINTR) throw RunError("secret", "no random bytes from the system: {}", errno_text(errno));
  return digest;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace funicular
