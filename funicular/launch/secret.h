#pragma once
// The secret that keeps strangers out of a run. The run's launcher makes it, and only the run's ranks know it. Two ends
// of a connection prove to each other that they know it. The secret itself is never sent. Plain POSIX, no LibTorch.
//
// The listening end sends a challenge. The connecting end answers with its own challenge and the proof for both. The
// listening end checks the proof before it reads anything else, and sends its own. A proof is an HMAC of the role and
// both challenges. So an overheard proof is useless for another connection or for the opposite direction.

#include <string>
#include <string_view>

namespace funicular::launch {

/// The environment variable that hands the secret to the ranks. /proc shows it to the same user only.
inline constexpr const char* kSecretVariable = "FUNICULAR_SECRET";

/// 256 random bits in hexadecimal digits.
std::string make_secret();

/// Throws InputError, without showing the secret, if it is easily guessed or does not fit in a line.
void check_secret(const std::string& secret);

/// First message of each side of a connection; each side waits for the message of the peer.
struct Handshake {
  static constexpr std::string_view kGreeting = "FUNICUL1";  ///< before the listener's challenge
  static constexpr size_t kChallengeBytes = 32, kProofBytes = 32;
  static constexpr size_t kGreetingBytes = kGreeting.size() + kChallengeBytes;
  static constexpr size_t kAnswerBytes = kChallengeBytes + kProofBytes;
  static constexpr char kAccepted = 'y', kRefused = 'n';  ///< before the listener's proof, which may be empty
  static constexpr size_t kVerdictBytes = 1 + kProofBytes;
};

/// The roles of the two sides of a connection to the store.
inline constexpr std::string_view kListener = "listener", kCaller = "caller";

/// The proof by the side with this role. The peer must have another one.
std::string prove_secret(std::string_view secret, std::string_view role, std::string_view listener_challenge,
                         std::string_view caller_challenge);

}  // namespace funicular::launch
