#include "funicular/base/isa.h"

#include <gtest/gtest.h>

namespace funicular::isa_tests {

constexpr ProcessorFlags kHaswell{.avx2 = true};
constexpr ProcessorFlags kSkylake{.avx2 = true, .avx512 = true, .intel = true};
constexpr ProcessorFlags kCooperLake{.avx2 = true, .avx512 = true, .bf16 = true, .intel = true};
constexpr ProcessorFlags kZen4{.avx2 = true, .avx512 = true, .bf16 = true};
constexpr ProcessorFlags kNextZen{.avx2 = true, .avx512 = true, .bf16 = true, .fp16 = true};
constexpr ProcessorFlags kSapphireRapids{
    .avx2 = true, .avx512 = true, .bf16 = true, .fp16 = true, .tiles = true, .intel = true};
constexpr ProcessorFlags kWithoutTiles{
    .avx2 = true, .avx512 = true, .bf16 = true, .fp16 = true, .intel = true};

TEST(Isa, IsTheFastestOfEachProcessor) {
  EXPECT_EQ(choose_isa({}, ""), Isa::baseline);
  EXPECT_EQ(choose_isa(kHaswell, ""), Isa::avx2);
  EXPECT_EQ(choose_isa(kSkylake, ""), Isa::avx512);
  EXPECT_EQ(choose_isa(kCooperLake, ""), Isa::avx512_bf16);
  EXPECT_EQ(choose_isa(kZen4, ""), Isa::avx512_bf16);
  EXPECT_EQ(choose_isa(kNextZen, ""), Isa::avx512_bf16);
  EXPECT_EQ(choose_isa(kSapphireRapids, ""), Isa::amx);
}

TEST(Isa, IsNotVdpbf16psWhereIntelHasTilesForIt) {
  EXPECT_EQ(choose_isa(kWithoutTiles, ""), Isa::avx512);
  EXPECT_EQ(choose_isa(kWithoutTiles, "amx"), Isa::avx512);
}

TEST(Isa, IsTheOneThatIsAskedForWhereTheProcessorHasIt) {
  EXPECT_EQ(choose_isa(kWithoutTiles, "avx512_bf16"), Isa::avx512_bf16);
  EXPECT_EQ(choose_isa(kSapphireRapids, "avx512_bf16"), Isa::avx512_bf16);
  EXPECT_EQ(choose_isa(kSapphireRapids, "avx512"), Isa::avx512);
  EXPECT_EQ(choose_isa(kZen4, "avx512_vnni"), Isa::avx512);
  EXPECT_EQ(choose_isa(kZen4, "avx2"), Isa::avx2);
  EXPECT_EQ(choose_isa(kZen4, "baseline"), Isa::baseline);
  EXPECT_EQ(choose_isa(kHaswell, "avx512_bf16"), Isa::avx2);
}

TEST(Isa, DoesNotPassOverOneThatIsMissing) {
  EXPECT_EQ(choose_isa({.avx512 = true, .bf16 = true}, ""), Isa::baseline);
  EXPECT_EQ(choose_isa({.avx2 = true, .bf16 = true, .tiles = true}, ""), Isa::avx2);
}

constexpr ProcessorFlags kAlderLake{.avx2 = true, .intel = true, .avx_vnni = true};
constexpr ProcessorFlags kIceLake{.avx2 = true, .avx512 = true, .intel = true, .avx512_vnni = true};

TEST(ByteProducts, AreVpdpbusdWhereAProcessorHasItBesideItsSet) {
  EXPECT_EQ(choose_byte_products(kHaswell, Isa::avx2, ""), ByteProducts::of_isa);
  EXPECT_EQ(choose_byte_products(kSkylake, Isa::avx512, ""), ByteProducts::of_isa);
  EXPECT_EQ(choose_byte_products(kAlderLake, Isa::avx2, ""), ByteProducts::avx_vnni);
  EXPECT_EQ(choose_byte_products(kIceLake, Isa::avx512, ""), ByteProducts::avx512_vnni);
}

TEST(ByteProducts, AreThoseOfTheSetWhereItHoldsVpdpbusdItself) {
  EXPECT_EQ(choose_byte_products(kIceLake, Isa::avx512_bf16, ""), ByteProducts::of_isa);
  EXPECT_EQ(choose_byte_products(kIceLake, Isa::amx, ""), ByteProducts::of_isa);
  EXPECT_EQ(choose_byte_products(kAlderLake, Isa::baseline, ""), ByteProducts::of_isa);
}

TEST(ByteProducts, AreLeftOutOrAskedForByTheSetsName) {
  EXPECT_EQ(choose_byte_products(kAlderLake, Isa::avx2, "avx2"), ByteProducts::of_isa);
  EXPECT_EQ(choose_byte_products(kAlderLake, Isa::avx2, "avx2_vnni"), ByteProducts::avx_vnni);
  EXPECT_EQ(choose_byte_products(kIceLake, Isa::avx512, "avx512"), ByteProducts::of_isa);
  EXPECT_EQ(choose_byte_products(kIceLake, Isa::avx512, "avx512_vnni"), ByteProducts::avx512_vnni);
}

TEST(ByteProducts, AreNotAvxVnnisOnAProcessorThatHasOnlyTheWideOnesUnlessAskedFor) {
  EXPECT_EQ(choose_byte_products(kIceLake, Isa::avx2, ""), ByteProducts::of_isa);
  EXPECT_EQ(choose_byte_products(kIceLake, Isa::avx2, "avx2_vnni"), ByteProducts::avx_vnni_evex);
  EXPECT_EQ(choose_byte_products(kSkylake, Isa::avx2, "avx2_vnni"), ByteProducts::of_isa);
}

}  // namespace funicular::isa_tests
