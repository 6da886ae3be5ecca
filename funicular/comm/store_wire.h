#pragma once
// The messages between a rank and the store of rank 0, after both have proved that they know the secret
// (launch/secret.h). A frame is a length and that many bytes. Numbers are in the processor's byte order.

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace funicular::comm {

enum class StoreAction : char {
  set = 's',
  get = 'g',    ///< answered once there is a value, or never where the rank asks something else before
  check = 'c',  ///< answered at once with the value, if there is one
  erase = 'e',
  hold =
      'h'  ///< sets a key without a value until this connection ends; answered with the value that is there
};

/// `id` is the rank's number for it; an answer to one that the rank no longer waits for is skipped.
struct StoreRequest {
  uint64_t id = 0;
  StoreAction action = StoreAction::check;
  std::string key, value;
};

struct StoreAnswer {
  uint64_t id = 0;
  bool there = false;  ///< check, erase, hold: whether there was a value
  std::string value;
};

/// The key whose value no other store has. The server sets it.
inline constexpr const char* kStoreIdentity = "identity";

namespace wire {

constexpr size_t kMostBytes = size_t{64} << 20;  ///< of a frame

template <class Number>
void put(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// False if so many bytes are not left.
template <class Number>
bool take(std::string_view& bytes, Number& number) {
  if (bytes.size() < sizeof number) return false;
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return true;
}

inline std::string frame(const std::string& body) {
  std::string bytes;
  put(bytes, static_cast<uint32_t>(body.size()));
  return bytes += body;
}

inline std::string encode(const StoreRequest& request) {
  std::string body;
  put(body, request.id);
  put(body, request.action);
  put(body, static_cast<uint32_t>(request.key.size()));
  return frame(body.append(request.key).append(request.value));
}

inline std::string encode(const StoreAnswer& answer) {
  std::string body;
  put(body, answer.id);
  put(body, static_cast<char>(answer.there));
  return frame(body.append(answer.value));
}

/// Nothing if the bytes are no such message.
inline std::optional<StoreRequest> decode_request(std::string_view body) {
  StoreRequest request;
  uint32_t key_bytes = 0;
  if (!take(body, request.id) || !take(body, request.action) || !take(body, key_bytes) ||
      body.size() < key_bytes)
    return std::nullopt;
  request.key = body.substr(0, key_bytes);
  request.value = body.substr(key_bytes);
  return request;
}

inline std::optional<StoreAnswer> decode_answer(std::string_view body) {
  StoreAnswer answer;
  char there = 0;
  if (!take(body, answer.id) || !take(body, there)) return std::nullopt;
  answer.there = there != 0;
  answer.value = body;
  return answer;
}

/// Frames that arrive in pieces.
class Frames {
 public:
  void add(std::string_view bytes) { bytes_.append(bytes); }
  /// The body of the next one that is complete.
  std::optional<std::string> next() {
    std::string_view rest = bytes_;
    uint32_t size = 0;
    if (!take(rest, size) || broken() || rest.size() < size) return std::nullopt;
    std::string body(rest.substr(0, size));
    bytes_.erase(0, sizeof size + size);
    return body;
  }
  /// Whether the bytes that came are no frame.
  bool broken() const {
    std::string_view rest = bytes_;
    uint32_t size = 0;
    return take(rest, size) && size > kMostBytes;
  }

 private:
  std::string bytes_;
};

}  // namespace wire

}  // namespace funicular::comm
