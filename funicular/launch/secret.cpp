#include "funicular/launch/secret.h"

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/hmac.h"
#include "funicular/launch/environment.h"

namespace funicular::launch {

std::string make_secret() {
  return hex(random_digest());
}

void check_secret(const std::string& secret) {
  constexpr size_t kLeast = 16, kMost = 256;
  const bool printable =
      std::all_of(secret.begin(), secret.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (secret.size() < kLeast || secret.size() > kMost || !printable)
    throw InputError(
        kRanks,
        "{} must be {} to {} letters, digits or signs without spaces, found {} bytes{}; make one "
        "with: openssl rand -hex 32",
        kSecretVariable, kLeast, kMost, secret.size(), printable ? "" : ", not all of them such");
}

std::string prove_secret(std::string_view secret, std::string_view role, std::string_view listener_challenge,
                         std::string_view caller_challenge) {
  // Both challenges have fixed lengths, so no two different messages have the same bytes.
  std::string message = "funicular/1 ";
  return hmac_sha256(secret,
                     message.append(role).append(" ").append(listener_challenge).append(caller_challenge));
}

}  // namespace funicular::launch
