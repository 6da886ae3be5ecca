// Claims about distillation: terms, maps, counts, what is left out, and what is known of a teacher before.
#include "funicular/objective/distillation.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/json.h"
#include "funicular/text/word_piece.h"

namespace funicular::objective::distillation_tests {
namespace {

text::WordPiece make_tokenizer() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 60; ++i) vocabulary.push_back("w" + std::to_string(i));
  return text::WordPiece(vocabulary, {}, {});
}

format::ModelConfig config_of(int64_t hidden, int64_t heads, int64_t layers) {
  format::ModelConfig config;
  config.encoder.vocabulary = 65;
  config.encoder.width = hidden;
  config.encoder.heads = heads;
  config.encoder.layers = layers;
  config.encoder.feed_forward.width = 40;
  config.encoder.positions.rows = 32;
  config.encoder.initializer_range = 0.3;
  config.num_labels = 3;
  return config;
}

DistillationOptions options_of(const std::vector<std::string>& terms) {
  DistillationOptions options;
  options.terms = parse_distillation_terms(terms);
  options.student = config_of(12, 2, 2);
  options.teacher = config_of(16, 2, 4);
  options.layers = make_layer_map("uniform", 2, 4);
  options.sequence.max_length = 32;
  options.relation_heads = 4;
  return options;
}

struct Rows {
  std::vector<std::vector<uint16_t>> tokens;
  std::vector<uint8_t> bits = std::vector<uint8_t>(64, 0xFF);
  Rows() {
    for (size_t length : {3, 1, 7, 5}) {
      tokens.emplace_back();
      for (size_t i = 0; i < length; ++i)
        tokens.back().push_back(static_cast<uint16_t>(5 + (7 * i + length) % 60));
    }
  }
  std::vector<data::Sample> samples() const {
    std::vector<data::Sample> all;
    for (size_t i = 0; i < tokens.size(); ++i) {
      data::Sample sample;
      sample.columns.push_back({data::TokenSpan(tokens[i].data(), tokens[i].size()), {bits.data(), 0}});
      sample.sample_id = sample.draw_id = static_cast<int64_t>(i);
      sample.label = static_cast<double>(i % 3);
      all.push_back(sample);
    }
    return all;
  }
};

Distillation with_teacher(const DistillationOptions& options) {
  return Distillation(make_tokenizer(), options, [options] {
    return Distillation(make_tokenizer(), options)
        .build_teacher({.config = options.teacher, .dtype = at::kDouble, .seed = 5});
  });
}

Model build(const Distillation& objective) {
  return objective.build({.config = objective.options().student, .dtype = at::kDouble});
}

std::map<std::string, double> losses_of(const Model& model, const MicroBatch& batch) {
  LossSink sink;
  model.forward({}, batch, {}, sink);
  std::map<std::string, double> losses{{"total", sink.total(batch.counts).item<double>()}};
  for (const LossSink::Term& term : sink.terms())
    losses[term.name] += term.sum.item<double>() / count_of(batch.counts, term.name);
  return losses;
}

TEST(DistillationTerms, AreReadWithTheirWeights) {
  const auto terms = parse_distillation_terms({"attention", "hidden=0.5", "mlm=2e3"});
  ASSERT_EQ(terms.size(), 3u);
  EXPECT_EQ(terms[0].weight, 1);
  EXPECT_EQ(terms[1].weight, 0.5);
  EXPECT_EQ(terms[2].kind, DistillationKind::mlm);
  for (const char* wrong : {"atention", "hidden=0", "hidden=-1", "hidden=x", "hidden=", "hidden=nan"})
    EXPECT_THROW(parse_distillation_terms({wrong}), InputError) << wrong;
  EXPECT_THROW(parse_distillation_terms({"soft", "soft=2"}), InputError);
  EXPECT_EQ(distillation_names().size(), static_cast<size_t>(DistillationKind::logits) + 1);
}

TEST(DistillationTerms, MapsOfLayersAreThoseOfThePaper) {
  // Jiao et al.: student layer m of 4 from teacher layer 3m of 12.
  EXPECT_EQ(make_layer_map("uniform", 4, 12), (LayerMap{{1, 3}, {2, 6}, {3, 9}, {4, 12}}));
  EXPECT_EQ(make_layer_map("last", 4, 12), (LayerMap{{1, 9}, {2, 10}, {3, 11}, {4, 12}}));
  EXPECT_EQ(make_layer_map("2:5,4:11", 4, 12), (LayerMap{{2, 5}, {4, 11}}));
  EXPECT_EQ(make_layer_map("2:5, 4 : 11 ", 4, 12), (LayerMap{{2, 5}, {4, 11}}));
  EXPECT_THROW(make_layer_map("uniform", 5, 12), InputError);
  EXPECT_THROW(make_layer_map("last", 13, 12), InputError);
  for (const char* wrong : {"1:13", "5:1", "0:1", "1:0", "2:4,1:8", "1:4,2:4", "1", "1:", ":2", "1:2x",
                            "even", "1:2,,2:3", "1:2, ,2:3", "1:1 2"})
    EXPECT_THROW(make_layer_map(wrong, 4, 12), InputError) << wrong;
}

TEST(Distillation, CountsFollowFromTheLengths) {
  const DistillationOptions options = options_of({"attention", "hidden", "soft", "hard", "relations"});
  const MicroBatch batch = Distillation(make_tokenizer(), options).collate(Rows().samples(), {});
  const double pairs = 5 * 5 + 3 * 3 + 9 * 9 + 7 * 7, tokens = 5 + 3 + 9 + 7;
  EXPECT_EQ(batch.counts.at("attention"), 2 * pairs);
  EXPECT_EQ(batch.counts.at("hidden"), 16 * tokens);
  EXPECT_EQ(batch.counts.at("soft"), 4 * 3);
  EXPECT_EQ(batch.counts.at("hard"), 4);
  EXPECT_EQ(batch.counts.at("relations"), 4 * tokens);
}

TEST(Distillation, LossIsTheWeightedSumOfTheTerms) {
  const MicroBatch batch =
      Distillation(make_tokenizer(), options_of({"soft", "hard"})).collate(Rows().samples(), {});
  DistillationOptions options = options_of({"soft=0.25", "hard=2"});
  options.temperature = 3;
  const auto losses = losses_of(build(with_teacher(options)), batch);
  EXPECT_NEAR(losses.at("total"), 0.25 * losses.at("soft") + 2 * losses.at("hard"), 1e-12);
  // The published formula, from the logits.
  Model student = build(with_teacher(options));
  LossSink sink;
  sink.keep_outputs = true;
  student.forward({}, batch, {}, sink);
  const at::Tensor logits = sink.outputs().at("logits");
  Model teacher = Distillation(make_tokenizer(), options)
                      .build_teacher({.config = options.teacher, .dtype = at::kDouble, .seed = 5});
  const at::Tensor theirs = teacher.forward({}, batch, {}, sink).at("logits");
  EXPECT_NEAR(losses.at("soft"),
              -((theirs / 3).softmax(1) * (logits / 3).log_softmax(1)).mean().item<double>(), 1e-12);
  options.mean_over_classes = false;
  const MicroBatch by_rows = Distillation(make_tokenizer(), options).collate(Rows().samples(), {});
  EXPECT_NEAR(losses_of(build(with_teacher(options)), by_rows).at("soft"), 3 * losses.at("soft"), 1e-12);
}

TEST(Distillation, SquaredLogitsAreAMeanOverRowsAndClasses) {
  const DistillationOptions options = options_of({"logits=2"});
  const Distillation objective = with_teacher(options);
  const MicroBatch batch = objective.collate(Rows().samples(), {});
  EXPECT_EQ(batch.counts.at("logits"), 4 * 3);
  LossSink of_student, of_teacher;
  of_student.keep_outputs = true;
  const Model model = build(objective);
  model.forward({}, batch, {}, of_student);
  TensorMap found;
  const Model teacher = objective.collecting(
      objective.build_teacher({.config = options.teacher, .dtype = at::kDouble, .seed = 5}), found);
  teacher.forward({}, batch, {}, of_teacher);
  const double expected =
      at::mse_loss(of_student.outputs().at("logits"), found.at("teacher.logits")).item<double>();
  EXPECT_GT(expected, 1e-3);
  EXPECT_NEAR(of_student.total(batch.counts).item<double>(), 2 * expected, 1e-12);
  EXPECT_EQ(options.teacher_layers_read(), 4);
  DistillationOptions classes = options;
  classes.teacher.num_labels = 5;
  try {
    check_distillation(classes);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("has 3 classes, the teacher 5"), std::string::npos)
        << error.what();
  }
}

TEST(Distillation, ATeacherOfItselfTeachesNothing) {
  DistillationOptions options = options_of({"attention", "relations", "cosine"});
  options.teacher = options.student;
  options.layers = make_layer_map("uniform", 2, 2);
  const Distillation objective(make_tokenizer(), options, [&] {
    return Distillation(make_tokenizer(), options)
        .build_teacher({.config = options.teacher, .dtype = at::kDouble});
  });
  const auto losses = losses_of(build(objective), objective.collate(Rows().samples(), {}));
  EXPECT_NEAR(losses.at("attention"), 0, 1e-25);
  EXPECT_NEAR(losses.at("relations"), 0, 1e-14);
  EXPECT_NEAR(losses.at("cosine"), 0, 1e-14);
}

std::set<std::string> segments_of(const Model& model) {
  std::set<std::string> names;
  for (const Segment& segment : model.segments) names.insert(segment.name);
  return names;
}

TEST(Distillation, WhatAStageDoesNotUseIsNotThere) {
  DistillationOptions layers = options_of({"hidden"});
  layers.layers = make_layer_map("1:1,2:3", 2, 4);
  const auto of_layers = segments_of(build(with_teacher(layers)));
  EXPECT_TRUE(of_layers.contains("teacher.layer.2"));
  EXPECT_FALSE(of_layers.contains("teacher.layer.3")) << "above the highest layer that is read";
  EXPECT_FALSE(of_layers.contains("classification") || of_layers.contains("teacher.classification"));
  const Model answers = build(with_teacher(options_of({"soft"})));
  EXPECT_TRUE(segments_of(answers).contains("teacher.classification"));
  EXPECT_FALSE(answers.find("distillation.projection.weight"));
  EXPECT_FALSE(segments_of(answers).contains("distillation.1"));
  const Distillation labels(make_tokenizer(), options_of({"hard"}));
  EXPECT_FALSE(labels.has_teacher());
  for (const std::string& name : segments_of(build(labels)))
    EXPECT_FALSE(name.starts_with("teacher.")) << name;
}

TEST(Distillation, ATeachersGroupsOfLayersStayWhole) {
  DistillationOptions options = options_of({"hidden"});
  options.teacher = format::default_config("albert");
  format::EncoderSpec& spec = options.teacher.encoder;
  spec.vocabulary = 65;
  spec.width = 16;
  spec.heads = 2;
  spec.layers = 6;
  spec.layer_groups = 2;
  spec.feed_forward.width = 40;
  spec.positions.rows = 32;
  spec.embedding_size = 8;
  const auto segments = [&](const char* map) {
    options.layers = make_layer_map(map, 2, 6);
    std::map<std::string, std::set<Parameter*>> found;
    const Model teacher = Distillation(make_tokenizer(), options).build_teacher({.config = options.teacher});
    for (const Segment& one : teacher.segments)
      found[one.name] = {one.parameters.begin(), one.parameters.end()};
    return found;
  };
  auto found = segments("1:1,2:4");
  EXPECT_TRUE(found.contains("layer.5"));
  EXPECT_EQ(found["layer.2"], found["layer.0"]);
  EXPECT_NE(found["layer.3"], found["layer.2"]);
  EXPECT_FALSE(segments("1:1,2:3").contains("layer.3")) << "above the group that is read";
  spec.layer_groups = 1;
  EXPECT_FALSE(segments("1:1,2:4").contains("layer.4")) << "one group can be cut anywhere";
}

struct Compared {
  const char *family, *term, *reason, *others;
};

TEST(Distillation, TermsThatAFamilyCannotCompareAreRefusedWithOnesThatWork) {
  for (const auto& [family, term, reason, others] :
       {Compared{"mpnet", "attention", "depends on their distance", "hidden cosine relations"},
        {"deberta-v2", "attention", "depends on their distance", "hidden cosine relations"},
        {"modernbert", "attention", "a ModernBERT turns by position", "hidden cosine"},
        {"nomic_bert", "relations", "turns by position", "hidden cosine"},
        {"gte", "relations", "turns by position", "hidden cosine"}}) {
    DistillationOptions options = options_of({term});
    options.student = options.teacher = format::default_config(family);
    const int64_t layers = options.student.encoder.layers;
    options.layers = make_layer_map("uniform", layers, layers);
    try {
      check_distillation(options);
      FAIL() << family;
    } catch (const InputError& error) {
      const std::string said = error.what();
      EXPECT_NE(said.find(reason), std::string::npos) << said;
      EXPECT_NE(said.find("such as `" + std::string(others) + "`, or `tokens mlm`"), std::string::npos)
          << said;
    }
    for (const std::string terms : {others, "tokens mlm"}) {
      std::istringstream words(terms);
      using Word = std::istream_iterator<std::string>;
      options.terms = parse_distillation_terms({Word(words), Word()});
      EXPECT_NO_THROW(check_distillation(options)) << family << ": " << terms;
    }
    options.terms = parse_distillation_terms({term});
    options.student.encoder.width /= 2;
    try {
      check_distillation(options);
      FAIL() << family;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).find("cosine"), std::string::npos) << error.what();
    }
  }
}

/// What a resume compares.
TEST(Distillation, ItsIdentityHoldsWhatTheTermsRead) {
  using Terms = std::vector<std::string>;
  const std::vector<std::pair<std::string, Terms>> changes = {{"layers", {"attention", "hidden", "patient"}},
                                                              {"temperature", {"soft", "tokens"}},
                                                              {"mean", {"soft"}},
                                                              {"relation heads", {"relations"}},
                                                              {"relation layer", {"relations"}}};
  for (const auto& [change, readers] : changes)
    for (const std::string term : {"attention", "hidden", "patient", "soft", "relations", "hard"}) {
      DistillationOptions before = options_of(term == "hard" ? Terms{term} : Terms{term, "hard"});
      before.student = config_of(16, 2, 2);
      DistillationOptions after = before;
      if (change == "layers") after.layers = make_layer_map("1:1,2:4", 2, 4);
      if (change == "temperature") after.temperature = 2;
      if (change == "mean") after.mean_over_classes = !before.mean_over_classes;
      if (change == "relation heads") after.relation_heads = 1;
      if (change == "relation layer") after.relation_layer = 3;
      const auto identity = [](const DistillationOptions& options) {
        return Distillation(make_tokenizer(), options).identity();
      };
      const bool reads = std::find(readers.begin(), readers.end(), term) != readers.end();
      EXPECT_EQ(identity(before) != identity(after), reads) << change << ", " << term;
    }
}

TEST(Distillation, NothingButTheStudentIsExported) {
  const Model model = build(with_teacher(options_of({"attention", "hidden"})));
  for (const auto& parameter : model.parameters) {
    const bool own = parameter->name.starts_with("bert.");
    EXPECT_EQ(parameter->exported, own) << parameter->name;
    EXPECT_EQ(parameter->constant, parameter->name.starts_with(kTeacher)) << parameter->name;
  }
}

TEST(Distillation, RefusesWhatDoesNotFit) {
  const auto refuses = [](DistillationOptions options, const std::string& phrase) {
    try {
      const Distillation objective(make_tokenizer(), std::move(options));
      ADD_FAILURE() << "nothing was refused: " << phrase;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(phrase), std::string::npos) << error.what();
    }
  };
  DistillationOptions options = options_of({"attention"});
  options.student.encoder.heads = 3;
  refuses(options, "attention heads");
  options = options_of({"hidden"});
  options.student.encoder.vocabulary = 66;
  refuses(options, "vocabulary");
  options = options_of({"soft"});
  options.student.num_labels = 2;
  refuses(options, "classes");
  refuses(options_of({"soft", "cosine"}), "channels");
  refuses(options_of({"soft", "mlm"}), "different heads");
  options = options_of({"relations"});
  options.relation_heads = 5;
  refuses(options,
          "do not divide the sizes 12 of the student and 16 of the teacher; expected one of 1, 2, 4");
  options = options_of({"relations"});
  options.relation_layer = 5;
  refuses(options, "is not there");
  options = options_of({"hidden"});
  options.layers = {{1, 2}};
  refuses(options, "learn nothing");
  options.layers = {{1, 2}, {2, 5}};
  refuses(options, "out of range");
  options = options_of({"soft"});
  options.temperature = 0;
  refuses(options, "temperature");
  options = options_of({"soft"});
  options.documents = true;
  refuses(options, "documents have no classes");
  refuses(options_of({}), "no term");
}

// ---- what is known of a teacher before

struct Folder {
  fs::path path = fs::temp_directory_path() / ("funicular_distillation_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

fs::path write(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
  return path;
}

TEST(SoftLabels, AreTheLogarithmsOfTheirColumns) {
  const Folder folder;
  const fs::path file =
      write(folder.path / "a.tsv", "a\tb\tc\n0.5\t0.25\t0.25\n1\t0\t0\n0\t0.5\t0.5\n0.2\t0.2\t0.6\n");
  const format::TextOptions layout{.header = true, .columns = {"b", "a", "c"}};
  const auto rows = read_soft_labels(file, layout, 4);
  MicroBatch batch;
  std::vector<data::Sample> samples = Rows().samples();
  std::swap(samples[0], samples[3]);
  rows->add(batch, samples);
  const at::Tensor found = batch["teacher.logits"].softmax(1);
  const at::Tensor expected =
      at::tensor({0.2, 0.2, 0.6, 0., 1., 0., 0.5, 0., 0.5, 0.25, 0.5, 0.25}, at::kFloat).view({4, 3});
  EXPECT_TRUE(at::allclose(found, expected)) << found;
  EXPECT_THROW(read_soft_labels(file, layout, 5), InputError);
  for (const char* wrong :
       {"0.5\t0.6\t0", "1.5\t-0.5\t0", "x\t1\t0", "nan\t1\t0", "\t1\t0", "0.3\t0.3\t0.3"}) {
    const fs::path bad = write(folder.path / "b.tsv", std::string("a\tb\tc\n1\t0\t0\n") + wrong + "\n");
    try {
      read_soft_labels(bad, layout, 2);
      ADD_FAILURE() << wrong;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("b.tsv:3"), std::string::npos) << error.what();
    }
  }
}

TEST(SoftLabels, OfRoundedDecimalsAreDividedByTheirSum) {
  const Folder folder;
  std::string head, thirteenths,
      logits;  // round(1 / 13, 3) is 0.077: 13 of them sum to 1.001, and 1.005 with one more 0.004
  format::TextOptions layout{.header = true};
  for (int i = 0; i < 13; ++i) {
    const std::string name = "c" + std::to_string(i);
    layout.columns.emplace_back(name);
    head += (i ? ";" : "") + name;
    thirteenths += std::string(i ? ";" : "") + (i == 0 ? "0,081" : "0,077");
    logits += std::string(i ? ";" : "") + "0,090";
  }
  const fs::path file = write(folder.path / "a.csv", head + "\n" + thirteenths + "\n");
  MicroBatch batch;
  std::vector<data::Sample> samples = Rows().samples();
  samples.resize(1);
  read_soft_labels(file, layout, 1)->add(batch, samples);
  const at::Tensor found = batch["teacher.logits"].exp();
  EXPECT_NEAR(found.sum().item<double>(), 1, 1e-6);
  EXPECT_NEAR(found[0][0].item<double>(), 0.081 / 1.005, 1e-6);
  EXPECT_THROW(read_soft_labels(write(folder.path / "b.csv", head + "\n" + logits + "\n"), layout, 1),
               InputError);
}

struct Asked {
  std::vector<std::pair<int64_t, int64_t>> ranges;
};

std::shared_ptr<const TeacherRows> open_cache(const fs::path& folder, Asked* asked,
                                              const std::string& teacher = "one", int64_t stop_at = -1,
                                              const std::function<void(int64_t, int64_t)>& told = {}) {
  const std::vector<int32_t> lengths{5, 3, 9, 7};
  const std::vector<KeptActivation> kept{{"teacher.logits", 3, false}, {"teacher.hidden.1", 4, true}};
  TeacherPass pass;
  if (asked)
    pass = [=](int64_t begin, int64_t end) {
      asked->ranges.emplace_back(begin, end);
      if (told) told(begin, end);
      if (begin <= stop_at && stop_at < end) throw InputError("test", "the process ends");
      int64_t tokens = 0, before = 0;
      for (int64_t i = 0; i < end; ++i) (i < begin ? before : tokens) += lengths[static_cast<size_t>(i)];
      return TensorMap{
          {"teacher.logits", at::arange(begin * 3, end * 3, at::kFloat).view({end - begin, 3})},
          {"teacher.hidden.1", at::arange(before * 4, (before + tokens) * 4, at::kFloat).view({tokens, 4})}};
    };
  return open_teacher_cache(folder, {teacher, "data", "sequences"}, kept, lengths, 9, pass);
}

TEST(TeacherCache, GivesEachRowsOwnAndAsksTheTeacherOnce) {
  const Folder folder;
  Asked asked;
  open_cache(folder.path / "c", &asked);
  EXPECT_EQ(asked.ranges, (std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {2, 3}, {3, 4}}));
  const auto rows = open_cache(folder.path / "c", &asked);
  EXPECT_EQ(asked.ranges.size(), 3u);
  MicroBatch batch;
  const std::vector<data::Sample> all = Rows().samples();
  rows->add(batch, std::vector<data::Sample>{all[3], all[1]});
  EXPECT_TRUE(
      at::equal(batch["teacher.logits"], at::tensor({9, 10, 11, 3, 4, 5}).view({2, 3}).to(at::kFloat)));
  ASSERT_EQ(batch["teacher.hidden.1"].size(0), 10);
  EXPECT_EQ(batch["teacher.hidden.1"].scalar_type(), at::kBFloat16);
  EXPECT_EQ(batch["teacher.hidden.1"][0][0].item<float>(), 4 * 17);
  EXPECT_EQ(batch["teacher.hidden.1"][7][1].item<float>(), 4 * 5 + 1);
}

TEST(TeacherCache, GoesOnWhereItEndedAndKeepsNothingHalf) {
  const Folder folder;
  Asked first, second, whole;
  EXPECT_THROW(open_cache(folder.path / "c", &first, "one", 2), InputError);
  // More than was stated to be done, as a process leaves it that is killed within a write.
  std::ofstream(folder.path / "c" / "teacher.hidden.1.bin", std::ios::app | std::ios::binary) << "half a row";
  EXPECT_THROW(open_cache(folder.path / "c", nullptr), InputError) << "it is not whole";
  open_cache(folder.path / "c", &second);
  open_cache(folder.path / "d", &whole);
  for (const char* file : {"teacher.logits.bin", "teacher.hidden.1.bin"})
    EXPECT_EQ(read_file(folder.path / "c" / file), read_file(folder.path / "d" / file)) << file;
}

TEST(TeacherCache, OfAnotherTeacherOrCutOffIsRefused) {
  const Folder folder;
  Asked asked;
  open_cache(folder.path / "c", &asked);
  const auto refuses = [&](const std::function<void()>& open, const std::string& phrase) {
    try {
      open();
      ADD_FAILURE() << phrase;
    } catch (const InputError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(phrase), std::string::npos) << message;
      EXPECT_NE(message.find("delete that"), std::string::npos) << message;
      EXPECT_EQ(message.find_first_of("{}\""), std::string::npos) << "no JSON: " << message;
    }
  };
  refuses([&] { open_cache(folder.path / "c", &asked, "another"); },
          "with another teacher, or with another arithmetic (one; this run has another)");
  const auto with = [&](const CacheIdentity& identity, const std::vector<KeptActivation>& kept,
                        const std::vector<int32_t>& lengths) {
    return [=, &folder] { open_teacher_cache(folder.path / "c", identity, kept, lengths, 9, nullptr); };
  };
  const std::vector<KeptActivation> kept{{"teacher.logits", 3, false}, {"teacher.hidden.1", 4, true}};
  refuses(with({"one", "others", "sequences"}, kept, {5, 3, 9, 7}),
          "with other rows (data; this run has others)");
  refuses(with({"one", "data", "shorter"}, kept, {5, 3, 9, 7}),
          "with rows that were cut otherwise (sequences; this run has shorter)");
  refuses(with({"one", "data", "sequences"}, kept, {5, 3, 9}),
          "with another number of rows (4; this run has 3)");
  refuses(with({"one", "data", "sequences"}, kept, {5, 3, 9, 8}),
          "with another number of tokens (24; this run has 25)");
  refuses(with({"one", "data", "sequences"}, {kept[0]}, {5, 3, 9, 7}),
          "with other answers of the teacher (logits, hidden.1; this run has logits); give the --terms");
  fs::resize_file(folder.path / "c" / "teacher.logits.bin", 40);
  refuses([&] { open_cache(folder.path / "c", &asked); },
          "teacher.logits.bin is cut off: it has 40 bytes, and its 4 rows have 48");
  for (const char* text : {"", "{", "[]", "{\"version\": 1}", "{\"version\": 2}"}) {
    write(folder.path / "c" / "cache.json", text);
    refuses([&] { open_cache(folder.path / "c", &asked); }, std::string(text) == "{\"version\": 1}"
                                                                ? "with another version of this program"
                                                                : "cache.json is damaged");
  }
}

TEST(TeacherCache, OfWhichAByteWasFlippedIsRefusedWithItsRows) {
  const Folder folder;
  Asked asked;
  // Rows 0 to 2 are a block of the process that was interrupted behind them, row 3 one of the next.
  const auto interrupt = [](int64_t begin, int64_t) {
    if (begin == 2) std::raise(SIGTERM);
  };
  EXPECT_THROW(open_cache(folder.path / "c", &asked, "one", -1, interrupt), CacheInterrupted);
  clear_interrupt();
  open_cache(folder.path / "c", &asked);
  EXPECT_EQ(asked.ranges, (std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {2, 3}, {3, 4}}));
  const fs::path file = folder.path / "c" / "teacher.hidden.1.bin";
  const std::string written = read_file(file);
  for (const auto& [at, rows] :
       std::vector<std::pair<size_t, std::string>>{{0, "rows 0 to 2"},
                                                   {17 * 4 * 2 - 1, "rows 0 to 2"},
                                                   {17 * 4 * 2, "rows 3 to 3"},
                                                   {written.size() - 1, "rows 3 to 3"}}) {
    std::string flipped = written;
    flipped[at] ^= 4;
    write(file, flipped);
    try {
      open_cache(folder.path / "c", nullptr);
      ADD_FAILURE() << at;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(rows + " of teacher.hidden.1.bin are damaged"),
                std::string::npos)
          << error.what();
    }
  }
  write(file, written);
  EXPECT_NO_THROW(open_cache(folder.path / "c", nullptr));
}

TEST(TeacherCache, WhoseBlocksMakeNoSenseIsRefused) {
  const Folder folder;
  Asked asked;
  open_cache(folder.path / "c", &asked);
  const fs::path file = folder.path / "c" / "cache.json";
  const OrderedJson whole = parse_json_or_null<OrderedJson>(read_file(file));
  const OrderedJson block = whole["blocks"].at(0);
  const auto with = [&](const char* key, const OrderedJson& value) {
    OrderedJson changed = block;
    changed[key] = value;
    return changed;
  };
  const OrderedJson list = OrderedJson::array();
  std::vector<OrderedJson> wrong{OrderedJson::object(), OrderedJson(),     {1},
                                 {with("end", 0)},      {with("end", 5)},  {with("end", "4")},
                                 {with("xxh3", list)},  {with("xxh3", 1)}, {block, block}};
  for (const OrderedJson& blocks : wrong) {
    OrderedJson changed = whole;
    changed["blocks"] = blocks;
    write(file, changed.dump());
    EXPECT_THROW(open_cache(folder.path / "c", &asked), InputError) << blocks;
  }
  write(file, whole.dump());
  EXPECT_NO_THROW(open_cache(folder.path / "c", nullptr));
}

TEST(TeacherCache, OfManyRowsHasABlockForEverySixteenPasses) {
  const Folder folder;
  const std::vector<int32_t> lengths(40, 2);
  const auto open = [&] {
    return open_teacher_cache(
        folder.path / "c", {"one", "data", "sequences"}, {{"teacher.logits", 1, false}}, lengths, 2,
        [](int64_t begin, int64_t end) {
          return TensorMap{{"teacher.logits", at::arange(begin, end, at::kFloat).view({end - begin, 1})}};
        });
  };
  open();
  const OrderedJson blocks =
      parse_json_or_null<OrderedJson>(read_file(folder.path / "c" / "cache.json"))["blocks"];
  ASSERT_EQ(blocks.size(), 3u);
  for (const size_t i : {0, 1, 2}) EXPECT_EQ(blocks[i]["end"], (std::vector<int>{16, 32, 40})[i]);
  EXPECT_NO_THROW(open());
}

TEST(TeacherCache, WritesThroughNoSymbolicLink) {
  const Folder folder;
  const fs::path victim = write(folder.path / "victim", "keep this");
  fs::create_directories(folder.path / "c");
  fs::create_symlink(victim, folder.path / "c" / "teacher.logits.bin");
  Asked asked;
  EXPECT_THROW(open_cache(folder.path / "c", &asked), RunError);
  EXPECT_EQ(read_file(victim), "keep this");
}

TEST(Distillation, ACacheStandsForTheTeacher) {
  const DistillationOptions options = options_of({"soft", "attention", "hidden"});
  const Rows rows;
  const std::vector<data::Sample> samples = rows.samples();
  const Distillation asks = with_teacher(options);
  const Distillation plain(make_tokenizer(), options);
  TensorMap found;
  Model teacher = plain.collecting(
      plain.build_teacher({.config = options.teacher, .dtype = at::kDouble, .seed = 5}), found);
  LossSink none;
  teacher.forward({}, plain.collate(samples, {}), {}, none);
  struct Exact final : TeacherRows {
    explicit Exact(TensorMap m) : all(std::move(m)) {}
    void add(MicroBatch& batch, std::span<const data::Sample>) const override {
      for (const auto& [name, value] : all) batch.tensors[name] = value;
    }
    TensorMap all;
  };
  std::set<std::string> names;
  for (const KeptActivation& kept : plain.teacher_activations()) {
    names.insert(kept.name);
    EXPECT_EQ(found.at(kept.name).size(1), kept.width);
    EXPECT_EQ(found.at(kept.name).size(0), kept.of_tokens ? 24 : 4);
  }
  EXPECT_EQ(names.size(), found.size());
  const Distillation knows(make_tokenizer(), options, nullptr, std::make_shared<Exact>(found));
  EXPECT_FALSE(knows.has_teacher());
  const auto expected = losses_of(build(asks), asks.collate(samples, {}));
  const auto cached = losses_of(build(knows), knows.collate(samples, {}));
  ASSERT_EQ(expected.size(), 4u);
  for (const auto& [name, value] : expected) EXPECT_NEAR(cached.at(name), value, 1e-12) << name;
}

}  // namespace
}  // namespace funicular::objective::distillation_tests
