#pragma once
// Proof that two processes share a secret: HMAC (FIPS 198-1) with SHA-256 (FIPS 180-4). For checksums that
// nobody attacks, base/hash.h is faster.

#include <string>
#include <string_view>

namespace funicular {

/// A message's digest: 32 bytes.
std::string sha256(std::string_view message);
std::string hmac_sha256(std::string_view key, std::string_view message);

/// Whether both are the same. The time that this takes tells nothing about where they differ.
bool same_digest(std::string_view a, std::string_view b);

/// 32 bytes from the system's generator for secrets. Throws RunError where there is none.
std::string random_digest();

/// Two hexadecimal digits for each byte.
std::string hex(std::string_view bytes);

}  // namespace funicular
