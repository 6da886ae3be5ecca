#include "funicular/base/hmac.h"

#include <gtest/gtest.h>

#include <string>

namespace funicular {
namespace {

TEST(Hmac, Sha256GivesTheDigestsOfTheStandard) {
  const auto digest = [](const std::string& text) { return hex(sha256(text)); };
  // FIPS 180-4's examples, and NIST's for the empty message and a million letters.
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Hmac, GivesTheCodesOfRfc4231) {
  const auto code = [](const std::string& key, const std::string& text) {
    return hex(hmac_sha256(key, text));
  };
  EXPECT_EQ(code(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(code("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(code(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(code(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, AnyBitThatDiffersIsSeen) {
  const std::string digest = random_digest();
  EXPECT_TRUE(same_digest(digest, std::string(digest)));
  EXPECT_FALSE(same_digest(digest, digest.substr(1)));
  for (size_t i = 0; i < digest.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = digest;
      other[i] = static_cast<char>(other[i] ^ 1 << bit);
      EXPECT_FALSE(same_digest(digest, other)) << i << " " << bit;
    }
}

TEST(Hmac, RandomBytesAreNeverTheSameTwice) {
  EXPECT_FALSE(same_digest(random_digest(), random_digest()));
}

}  // namespace
}  // namespace funicular
