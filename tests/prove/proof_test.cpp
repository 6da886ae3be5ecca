// Claims about proofs: they hold for what is equal, and notice what is not.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "funicular/base/error.h"
#include "funicular/format/model_config.h"
#include "funicular/format/safetensors.h"
#include "funicular/prove/proof_text.h"
#include "proofs.h"

namespace funicular::prove {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the layouts under test

TEST_F(Proofs, RanksAccumulationAndRecomputationGiveTheSameGradientsAndWeights) {
  if (is_rank()) return run_rank();
  for (const char* layout :
       {"ddp -n 2",
        "ddp -n 3 --micro-batch-size 2 --recompute full",
        "zero1 -n 4 --micro-batch-size 1",
        "zero2 -n 3 --micro-batch-size 2 --recompute sqrt",
        "zero3 -n 2 --recompute full",
        "zero3 -n 4 --micro-batch-size 1 --recompute sqrt",
        "zero3 -n 3 --recompute selective",
        "dp -n 2",
        "dp -n 3 --micro-batch-size 2 --recompute full",
        "ps-sync -n 3",
        "ps-sync -n 4 --servers 2 --micro-batch-size 2 --recompute full",
        "pipeline -n 2 --micro-batch-size 3",
        "pipeline -n 2 --schedule zb-v --micro-batch-size 2 --recompute full",
        "pipeline -n 3 --schedule zb-h1 --micro-batch-size 2",
        "pipeline -n 2 --schedule v-half --micro-batch-size 2",
        "pipeline -n 4 --schedule gpipe --micro-batch-size 5",
        "pipeline -n 2 --schedule interleaved --micro-batch-size 2 --recompute sqrt",
        "pipeline -n 4 --pipeline-parallel 2 --micro-batch-size 2",
        "pipeline-zero1 -n 4 --pipeline-parallel 2 --schedule zb-h1 --micro-batch-size 2",
        "tensor -n 3",
        "tensor -n 2 --micro-batch-size 3 --recompute full",
        "tensor -n 2 --sequence-parallel --recompute selective",
        "tensor -n 4 --tensor-parallel 2 --micro-batch-size 2",
        "zero2 -n 4 --tensor-parallel 2 --sequence-parallel --micro-batch-size 3 --recompute sqrt",
        "pipeline -n 4 --tensor-parallel 2 --schedule zb-v --micro-batch-size 2",
        "pipeline -n 4 --tensor-parallel 2 --sequence-parallel --micro-batch-size 3 --recompute full",
        "pipeline -n 4 --pipeline-parallel 2 --zero 2 --schedule interleaved --micro-batch-size 1",
        "pipeline-zero3 -n 4 --pipeline-parallel 2 --micro-batch-size 2 --recompute sqrt",
        "pipeline-zero2 -n 4 --pipeline-parallel 2 --schedule zb-h1 --micro-batch-size 2",
        "pipeline-zero3 -n 4 --pipeline-parallel 2 --schedule zb-v --micro-batch-size 1 --recompute full"}) {
    const Proof proof = compare(layout, "single");
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
    EXPECT_LE(promise.bound, 1e-10);
    EXPECT_GT(proof.tensors, 3 * 3 * 40);
    EXPECT_GT(proof.gradient.relative, 0) << "other sums were compared, not the same run";
  }
}

class OtherOptimizers : public Proofs, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (!is_rank()) ::setenv("TEST_OPTIMIZER", GetParam(), 1);
  }
  void TearDown() override {
    if (!is_rank()) ::unsetenv("TEST_OPTIMIZER");
  }
};

TEST_P(OtherOptimizers, UpdateAlikeHoweverTheirStateIsShared) {
  if (is_rank()) return run_rank();
  for (const char* layout : {"ddp -n 2", "zero1 -n 3 --micro-batch-size 2", "zero2 -n 2", "zero3 -n 2",
                             "pipeline -n 2 --micro-batch-size 3", "tensor -n 3"}) {
    const Proof proof = compare(layout, "single");
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
    EXPECT_GT(proof.gradient.relative, 0) << "other sums were compared, not the same run";
  }
}

INSTANTIATE_TEST_SUITE_P(Each, OtherOptimizers, ::testing::Values("lion", "stable_adamw"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(Proofs, PipelinesThatUpdateWhileFullFollowTheReferenceWithOlderWeights) {
  if (is_rank()) return run_rank();
  const std::string reference = "reference --schedule ";
  for (const std::string schedule : {"pipedream", "pipedream-vertical-sync", "pipedream-2bw"}) {
    const Proof proof =
        compare("pipeline -n 3 --schedule " + schedule, reference + schedule + " --pipeline-parallel 3");
    EXPECT_TRUE(holds(proof, promise)) << schedule << ": " << proof.first;
    EXPECT_LE(promise.bound, 1e-10);
    EXPECT_GT(proof.tensors, 3 * 4 * 3 * 16);
  }
  const std::map<std::string, std::string> schedule_of = {
      {"--pipeline-parallel 2 --zero 1 --recompute full", "pipedream-2bw"},
      {"--pipeline-parallel 2 --zero 3", "pipedream-vertical-sync"},
      {"--tensor-parallel 2 --sequence-parallel", "pipedream"},
      {"--tensor-parallel 2 --recompute full", "pipedream-2bw"}};
  for (const auto& [options, schedule] : schedule_of) {
    const Proof proof = compare("pipeline -n 4 " + options + " --schedule " + schedule,
                                reference + schedule + " --pipeline-parallel 2");
    EXPECT_TRUE(holds(proof, promise)) << options << ": " << proof.first;
  }
  // Weights of another recurrence are no errors of logic.
  for (const char* other : {"single", "reference", "reference --schedule pipedream --pipeline-parallel 2",
                            "reference --schedule pipedream-2bw --pipeline-parallel 3"})
    EXPECT_THROW(promise_of(Layout::parse("pipeline -n 3 --schedule pipedream"), Layout::parse(other), kTask),
                 InputError);
  EXPECT_THROW(Layout::parse("reference --schedule 1f1b --pipeline-parallel 2"), InputError);
  const auto own = std::filesystem::temp_directory_path() / ("funicular-own-" + std::to_string(::getpid()));
  std::ofstream(own) << "0F0@0 0B0@0 0U1\n1F0@0 1B0@0 1U1\n";
  const std::string file = " --schedule " + own.string();
  EXPECT_THROW(Layout::parse("reference" + file + " --pipeline-parallel 2"), InputError);
  EXPECT_NO_THROW(promise_of(Layout::parse("pipeline -n 2" + file),
                             Layout::parse("pipeline -n 4 --pipeline-parallel 2" + file), {}));
  std::filesystem::remove(own);
}

TEST_F(Proofs, EverySeededFaultIsCaught) {
  if (is_rank()) return run_rank();
  // A fault that reaches the loss is seen there, before the gradients.
  for (const auto& [fault, first] :
       std::map<std::string, std::string>{{"wrong-count", "step 1, loss"},
                                          {"repeated-mask", "step 1, loss"},
                                          {"dropped-micro-batch", "step 1, loss"},
                                          {"halved-gradient", "step 1, gradient"}}) {
    const Proof proof = compare("ddp -n 2 --micro-batch-size 3 --fault " + fault, "single");
    EXPECT_FALSE(holds(proof, promise)) << fault;
    EXPECT_TRUE(proof.first.starts_with(first)) << fault << ": " << proof.first;
    EXPECT_GT(proof.gradient.relative, 1e-4) << fault;
  }
  for (const char* layout :
       {"zero1 -n 2 --fault wrong-count", "zero3 -n 2 --fault repeated-mask",
        "zero3 -n 2 --fault halved-gradient", "tensor -n 2 --fault halved-gradient",
        "dp -n 2 --micro-batch-size 3 --fault dropped-micro-batch",
        "pipeline -n 2 --micro-batch-size 4 --fault dropped-micro-batch",
        "pipeline -n 4 --tensor-parallel 2 --micro-batch-size 4 --fault halved-gradient"})
    EXPECT_FALSE(holds(compare(layout, "single"), promise)) << layout;
  EXPECT_FALSE(
      holds(compare("pipeline -n 3 --schedule pipedream --micro-batch-size 4 --fault dropped-micro-batch",
                    "reference --schedule pipedream --pipeline-parallel 3"),
            promise));
}

/// What tied weights, biases, norms and slices of the vocabulary have to go through; clipped.
TEST_F(Proofs, SlicesAndStagesOfMaskedWordsTrainAsOneProcess) {
  if (is_rank()) return run_rank();
  ::setenv("TEST_OBJECTIVE", kMaskedLm, 1);
  for (const char* layout : {"ddp -n 2", "tensor -n 2", "pipeline -n 3 --micro-batch-size 4",
                             "pipeline -n 4 --tensor-parallel 2 --micro-batch-size 4"}) {
    const Proof proof = compare(layout, "single");
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
  }
  ::unsetenv("TEST_OBJECTIVE");
}

TEST_F(Proofs, ADeterministicPairIsPromisedTheSameBitsAndHasThem) {
  if (is_rank()) return run_rank();
  const Proof proof = compare("zero2 -n 2 --micro-batch-size 5 --deterministic",
                              "single --micro-batch-size 5 --deterministic");
  EXPECT_TRUE(promise.bit_identical);
  EXPECT_TRUE(holds(proof, promise)) << proof.first;
  const Proof other = compare("ddp -n 2 --micro-batch-size 3", "single --micro-batch-size 5 --deterministic");
  EXPECT_FALSE(promise.bit_identical);
  EXPECT_FALSE(other.bit_identical);
}

TEST_F(Proofs, ReplicasOfEqualSlicesHaveTheSameBitsUnderDeterministicLayouts) {
  if (is_rank()) return run_rank();
  for (const char* layout : {"tensor -n 4 --tensor-parallel 2", "zero1 -n 6 --tensor-parallel 2",
                             "zero3 -n 4 --tensor-parallel 2"}) {
    const Proof proof = compare(std::string(layout) + " --micro-batch-size 2 --deterministic",
                                "tensor -n 2 --micro-batch-size 2 --deterministic");
    EXPECT_TRUE(promise.bit_identical) << layout;
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
  }
  const Proof whole = compare("tensor -n 2 --micro-batch-size 2 --deterministic",
                              "single --micro-batch-size 2 --deterministic");
  EXPECT_FALSE(promise.bit_identical) << "a product that is cut adds up in another order";
  EXPECT_TRUE(holds(whole, promise)) << whole.first;
  EXPECT_FALSE(whole.bit_identical);
}

class Objectives : public Proofs, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (!is_rank()) ::setenv("TEST_OBJECTIVE", GetParam(), 1);
  }
  void TearDown() override {
    if (!is_rank()) ::unsetenv("TEST_OBJECTIVE");
  }
};

TEST_P(Objectives, TrainUnderEveryStrategyWithAccumulationAndRecomputationAsInOneProcess) {
  if (is_rank()) return run_rank();
  for (const char* const layout :
       {"single --micro-batch-size 3 --recompute full", "ddp -n 2 --micro-batch-size 2", "zero1 -n 3",
        "zero2 -n 2 --recompute sqrt", "zero3 -n 3 --micro-batch-size 2",
        "tensor -n 2 --sequence-parallel --micro-batch-size 3"}) {
    const Proof proof = compare(layout, "single");
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
    EXPECT_LE(promise.bound, 1e-10);
    EXPECT_GT(proof.gradient.relative, 0) << "other sums were compared, not the same run";
    EXPECT_GT(proof.tensors, 3 * 4 * 40);
  }
  EXPECT_TRUE(compare("zero3 -n 2 --micro-batch-size 4 --deterministic",
                      "single --micro-batch-size 4 --deterministic")
                  .bit_identical);
  EXPECT_FALSE(holds(compare("ddp -n 2 --fault wrong-count", "single"), promise));
}

INSTANTIATE_TEST_SUITE_P(Each, Objectives, ::testing::Values("electra", "macbert"),
                         [](const auto& info) { return std::string(info.param); });

struct Trained {
  std::string family, objective;
};

void PrintTo(const Trained& trained, std::ostream* out) {
  *out << trained.family << " " << trained.objective;
}

class References : public Proofs, public ::testing::WithParamInterface<Trained> {
 protected:
  void SetUp() override {
    if (is_rank()) return;
    ::setenv("TEST_OBJECTIVE", GetParam().objective.c_str(), 1);
    if (GetParam().family == "bert") return;  // as without a model
    format::write_model_config(folder("model"), config_of(GetParam().family));
    ::setenv("TEST_MODEL", (folder("model") / "config.json").c_str(), 1);
  }
  void TearDown() override {
    if (is_rank()) return;
    ::unsetenv("TEST_OBJECTIVE");
    ::unsetenv("TEST_MODEL");
  }
};

TEST_P(References, AStepWrittenTwiceGivesTheSameLossesGradientsMomentsAndWeights) {
  if (is_rank()) return run_rank();
  const Proof proof = compare("single", "reference");
  EXPECT_LE(promise.bound, 1e-10);
  EXPECT_LE(promise.loss_bound, 1e-10);
  EXPECT_TRUE(holds(proof, promise)) << proof.first;
  EXPECT_FALSE(proof.bit_identical) << "other operations were compared, not the same run";
  // Of each step a gradient, a weight and two moments of each of the three layers' tensors, and more.
  const std::string& family = GetParam().family;
  const int of_a_layer = family == "modernbert" ? 9 : family == "nomic_bert" ? 11 : 16;
  EXPECT_GT(proof.tensors, 3 * 4 * (family == "albert" ? 1 : 3) * of_a_layer);
  // Left out are the biases of keys, which change no softmax. Left out is also what the scores come from where they
  // are all but equal: in ELECTRA's first layer, before which no normalisation stands (embeddings_project), and in
  // its small generator.
  for (const std::string& name : proof.noise) {
    const bool scores =
        name.find("attention.self.query.") != name.npos || name.find("attention.self.key.") != name.npos;
    EXPECT_TRUE(
        name.ends_with("key.bias") || name.ends_with("k_lin.bias") || name.ends_with("attn.k.bias") ||
        name.ends_with("k_proj.bias") ||
        (scores && (name.find("electra.encoder.layer.0.") != name.npos || name.starts_with("generator."))))
        << name;
  }
}

TEST_P(References, RanksTakeTheStepThatIsWrittenTwice) {
  if (is_rank()) return run_rank();
  for (const char* layout : {"ddp -n 2 --micro-batch-size 3", "zero3 -n 2 --micro-batch-size 3"}) {
    const Proof proof = compare(layout, "reference");
    EXPECT_LE(promise.bound, 1e-10);
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
  }
}

class OtherFamilies : public References {};

TEST_P(OtherFamilies, TrainUnderEveryStrategyAsInOneProcess) {
  if (is_rank()) return run_rank();
  for (const char* const layout : {"ddp -n 2", "zero2 -n 2 --recompute full", "zero3 -n 3", "tensor -n 3",
                                   "tensor -n 2 --sequence-parallel"}) {
    const Proof proof = compare(layout, "single");
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
  }
  EXPECT_TRUE(compare("zero3 -n 2 --micro-batch-size 1 --deterministic",
                      "single --micro-batch-size 1 --deterministic")
                  .bit_identical);
}

class SharedWeights : public References {};

/// Layers of different stages read the same weights.
TEST_P(SharedWeights, LearnUnderEveryPipelineAsInOneProcess) {
  if (is_rank()) return run_rank();
  for (const char* const layout :
       {"pipeline -n 3 --micro-batch-size 2",
        "pipeline -n 2 --schedule zb-v --micro-batch-size 2 --recompute full",
        "pipeline -n 3 --schedule zb-h1 --micro-batch-size 2",
        "pipeline -n 4 --tensor-parallel 2 --schedule zb-v --micro-batch-size 2",
        "pipeline-zero3 -n 4 --pipeline-parallel 2 --schedule zb-v --micro-batch-size 1"}) {
    const Proof proof = compare(layout, "single");
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
  }
}

TEST_P(References, AFaultThatTwoLayoutsShareIsSeenBesideTheReferenceAlone) {
  if (is_rank()) return run_rank();
  const std::string single = "single --fault halved-gradient";
  // One head shows that layouts agree on a fault, and each that the reference does not.
  if (GetParam().family == "bert" && GetParam().objective == kMaskedLm) {
    const Proof shared = compare("ddp -n 2 --fault halved-gradient", single);
    EXPECT_TRUE(holds(shared, promise)) << shared.first;
  }
  const Proof seen = compare(single, "reference");
  EXPECT_FALSE(holds(seen, promise));
  EXPECT_TRUE(seen.first.starts_with("step 1, gradient")) << seen.first;
  EXPECT_GT(seen.gradient.relative, 1e-3);
}

std::string name_of(const ::testing::TestParamInfo<Trained>& info) {
  std::string name = info.param.family;
  std::erase_if(name, [](char letter) { return letter == '-' || letter == '_' || letter == '/'; });
  bool starts = true;  // a word of the objective's name, of which only letters may stay
  for (const char letter : info.param.objective) {
    if (letter != '-') name += static_cast<char>(starts ? std::toupper(letter) : letter);
    starts = letter == '-';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Heads, OtherFamilies,
    ::testing::Values(Trained{"roberta", kMaskedLm}, Trained{"electra", kClassification},
                      Trained{"distilbert", kMaskedLm}, Trained{"distilbert", kClassification},
                      Trained{"modernbert", kMaskedLm}, Trained{"modernbert", kClassification},
                      Trained{"mpnet", kClassification}, Trained{"albert", kClassification},
                      Trained{"deberta-v2", kMaskedLm}, Trained{"nomic_bert", kClassification},
                      Trained{"gte", kMaskedLm}),
    name_of);

INSTANTIATE_TEST_SUITE_P(Heads, SharedWeights,
                         ::testing::Values(Trained{"mpnet", kMaskedLm}, Trained{"albert", kMaskedLm},
                                           Trained{"albert/two-groups", kMaskedLm},
                                           Trained{"deberta-v2", kMaskedLm}, Trained{"gte", kMaskedLm},
                                           Trained{"modernbert/alternating", kMaskedLm}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Heads, References,
    ::testing::Values(
        Trained{"bert", kMaskedLm}, Trained{"bert", kClassification}, Trained{"roberta", kMaskedLm},
        Trained{"roberta", kClassification}, Trained{"electra", kMaskedLm},
        Trained{"electra", kClassification}, Trained{"distilbert", kMaskedLm},
        Trained{"distilbert", kClassification}, Trained{"modernbert", kMaskedLm},
        Trained{"modernbert", kClassification}, Trained{"modernbert", kTags}, Trained{"mpnet", kMaskedLm},
        Trained{"albert", kTags}, Trained{"deberta-v2", kClassification},
        Trained{"deberta-v2/few-buckets", kMaskedLm}, Trained{"nomic_bert", kMaskedLm},
        Trained{"gte", kMaskedLm}, Trained{"gte", kClassification}, Trained{"bert", kElectra},
        Trained{"electra", kElectra}, Trained{"bert", kMacBert}, Trained{"bert", kTags},
        Trained{"electra", kTags}, Trained{"bert", kMultiLabel}, Trained{"roberta", kMultiLabel},
        Trained{"bert", kSoftLabels}, Trained{"bert", kSoftMultiLabel}, Trained{"bert", kLongTexts},
        Trained{"bert", kDistillation}, Trained{"roberta", kDistillation},
        Trained{"bert", kDistillationOfTokens}, Trained{"bert", kDistillationOfAllTokens},
        Trained{"modernbert", kDistillation}, Trained{"modernbert", kDistillationOfTokens},
        Trained{"mpnet", kDistillation}, Trained{"deberta-v2", kDistillation},
        Trained{"nomic_bert", kDistillationOfTokens}, Trained{"gte", kDistillationOfAllTokens},
        Trained{"bert", kRelatedTexts}, Trained{"roberta", kRelatedTexts}, Trained{"bert", kScoredTexts}),
    name_of);

TEST_F(Proofs, ALossThatDiffersIsNamedThoughAllTensorsAgree) {
  if (is_rank()) return run_rank();
  const fs::path right = ran(Layout::parse("single")), wrong = folder("wrong");
  fs::copy(right, wrong);
  Json losses = read_json(wrong / "losses.json");
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_EQ(losses[1].size(), 2U) << "the total and the term mlm";
  const auto changed = [&](const char* name, const Json& value) {
    Json other = losses;
    if (value.is_null())
      other[1].erase(name);
    else
      other[1][name] = value;
    write_file_atomically(wrong / "losses.json", other.dump());
    const Promise bounded{.bound = 1e-10, .loss_bound = 1e-10}, same_bits{.bit_identical = true};
    for (const Promise& each : {bounded, same_bits}) {
      const Proof proof = compare_layouts(wrong, right, 3, each);
      EXPECT_FALSE(holds(proof, each));
      EXPECT_EQ(proof.loss.step, 2);
      EXPECT_EQ(proof.loss.tensor, name);
      EXPECT_EQ(proof.gradient.relative, 0);
      EXPECT_TRUE(proof.first.starts_with(std::string("step 2, loss ") + name)) << proof.first;
    }
  };
  changed("mlm", losses[1]["mlm"].get<double>() * 1.001);
  changed("total", losses[1]["total"].get<double>() * (1 + 1e-9));
  changed("mlm", Json());
  changed("other", 1.0);
}

TEST_F(Proofs, ATensorThatDiffersIsNamedWhateverIsWrongWithItAndInWhichStep) {
  if (is_rank()) return run_rank();
  const fs::path right = ran(Layout::parse("single")), wrong = folder("wrong");
  fs::copy(right, wrong);
  const std::string name = step_file("weight", 2), bytes = read_file(right / name);
  const format::SafetensorsFile file(right / name);
  const format::TensorEntry& entry = file.entries().front();
  const size_t place =
      bytes.find(std::string(reinterpret_cast<const char*>(entry.data.data()), entry.data.size()));
  ASSERT_NE(place, std::string::npos);
  double value = 0;
  std::memcpy(&value, bytes.data() + place, sizeof value);
  ASSERT_NE(value, 0);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double other : {-value, value * 2, std::numeric_limits<double>::quiet_NaN(), infinity}) {
    std::string changed = bytes;
    std::memcpy(changed.data() + place, &other, sizeof other);
    write_file_atomically(wrong / name, changed);
    const Promise bounded{.bound = 1e-10, .loss_bound = 1e-10}, same_bits{.bit_identical = true};
    for (const Promise& each : {bounded, same_bits}) {
      const Proof proof = compare_layouts(wrong, right, 3, each);
      EXPECT_FALSE(holds(proof, each)) << other;
      EXPECT_TRUE(proof.first.starts_with("step 2, weight " + entry.name)) << other << ": " << proof.first;
    }
  }
}

TEST(Distillations, HaveInEveryFamilyTheTermsThatItCanCompare) {
  for (const std::string& family : format::supported_model_types())
    for (const std::string name : {kDistillation, kDistillationOfTokens, kDistillationOfAllTokens}) {
      const objective::DistillationOptions options = distillation_of(task_of(name), config_of(family));
      EXPECT_NO_THROW(objective::check_distillation(options)) << family << ", " << name;
      const format::EncoderSpec &student = options.student.encoder, &teacher = options.teacher.encoder;
      EXPECT_EQ(teacher.layers, 6) << family;
      EXPECT_EQ(teacher.attention.size(), 2 * student.attention.size()) << family;
      const size_t left_out = !student.attention.empty() ? 2 : student.positions.relative ? 1 : 0;
      EXPECT_EQ(options.terms.size(), name == kDistillation ? 7 - left_out : 2) << family << ", " << name;
    }
}

TEST(Layouts, SameBitsArePromisedToTheSameMicroBatchesAlone) {
  const auto promised = [](const std::string& a, const std::string& b) {
    return promise_of(Layout::parse(a + " --deterministic"), Layout::parse(b + " --deterministic"), kTask)
        .bit_identical;
  };
  EXPECT_TRUE(promised("zero2 -n 2 --micro-batch-size 5", "single --micro-batch-size 5"));
  EXPECT_FALSE(promised("zero2 -n 2 --micro-batch-size 5", "single --micro-batch-size 3"));
  EXPECT_FALSE(promised("zero2 -n 2", "single")) << "a rank's share in one piece";
}

TEST(Layouts, WhatTheReferenceCannotTrainIsRefused) {
  ProofTask task = kTask;
  EXPECT_EQ(reference_refuses(task), "");
  task.precision = Precision::bf16;
  EXPECT_NE(reference_refuses(task).find("--precision fp64"), std::string::npos);
  task.precision = Precision::fp64;
  task.optimizer = optim::Sgd{};
  EXPECT_NE(reference_refuses(task).find("--optim adamw"), std::string::npos);
  const TemporaryFolder folder;
  const std::string message = funicular::test::error_of(
      [&] { run_layout(task, Layout::parse("reference"), comm::Group(), folder / ""); });
  EXPECT_NE(message.find("--optim adamw"), std::string::npos) << message;
}

TEST(Layouts, WrongWordsAreNamed) {
  for (const auto& [text, word] : std::vector<std::pair<std::string, std::string>>{
           {"dp2", "dp2"},
           {"ddp -n", "-n"},
           {"ddp -n two", "two"},
           {"ddp --ranks 2", "--ranks"},
           {"single -n 2", "single"},
           {"ddp --fault typo", "typo"},
           {"ddp --fault typo", "halved-gradient"},
           {"pipeline -n 2 --schedule pipedream --fault halved-gradient", "overlap"},
           {"dp -n 2 --fault wrong-count", "several replicas"},
           {"tensor -n 2 --fault wrong-count", "several replicas"},
           {"pipeline -n 2 --fault wrong-count", "several replicas"},
           {"reference -n 2", "--threads"},
           {"reference --fault wrong-count", "--threads"},
           {"zero1 -n 2 --zero 3", "--zero 3 and the strategy zero1"},
           {"ddp -n 2 --pipeline-parallel 2", "contradict"},
           {"", "empty"}}) {
    const std::string message = funicular::test::error_of([&] { Layout::parse(text); });
    EXPECT_NE(message.find(word), std::string::npos) << text << ": " << message;
  }
}

TEST(Layouts, OfSlicesInStagesAreThoseOfStagesOfSlices) {
  const Layout slices = Layout::parse("tensor -n 4 --pipeline-parallel 2"),
               stages = Layout::parse("pipeline -n 4 --tensor-parallel 2");
  EXPECT_EQ(slices.shared, stages.shared);
}

}  // namespace
}  // namespace funicular::prove
