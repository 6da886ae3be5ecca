// Claims about layouts: what names and options say, what fits a world, and what is said of what does not.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/parallel/layout.h"

namespace funicular::parallel {
namespace {

Layout of(const std::string& name, const std::vector<std::pair<std::string, std::string>>& options = {}) {
  LayoutOptions given{.strategy = name};
  for (const auto& [option, value] : options) EXPECT_TRUE(given.set(option, value)) << option;
  return given.layout();
}

void refuses(const Layout& layout, int ranks, const std::vector<std::string>& parts) {
  try {
    layout.on(ranks);
    ADD_FAILURE() << "nothing is refused: " << parts.front();
  } catch (const InputError& error) {
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Layouts, OfEveryNameAreWrittenAsThatName) {
  for (const std::string& name : strategy_names()) {
    const Layout layout = of(name).on(name == "single" || name == "dp" ? 1 : 4);
    EXPECT_EQ(layout.strategy(), name == "auto" ? "ddp" : name);
    if (layout.kind == Layout::Kind::ranks) {
      EXPECT_EQ(layout.mesh().ranks(), 4) << name;
    }
  }
  EXPECT_THROW(of("zero4"), InputError);
}

TEST(Layouts, TakeTheRanksThatAreLeft) {
  const Layout all = of("pipeline").on(6);
  EXPECT_EQ(all.mesh(), (comm::MeshShape{1, 6, 1}));
  EXPECT_EQ(of("pipeline", {{"data-parallel", "2"}}).on(6).mesh(), (comm::MeshShape{2, 3, 1}));
  EXPECT_EQ(of("pipeline", {{"tensor-parallel", "2"}}).on(6).mesh(), (comm::MeshShape{1, 3, 2}));
  EXPECT_EQ(of("tensor").on(6).mesh(), (comm::MeshShape{1, 1, 6}));
  EXPECT_EQ(of("zero2").on(6).mesh(), (comm::MeshShape{6, 1, 1}));
  const Layout product =
      of("auto", {{"pipeline-parallel", "2"}, {"tensor-parallel", "3"}, {"zero", "2"}}).on(12);
  EXPECT_EQ(product.mesh(), (comm::MeshShape{2, 2, 3}));
  EXPECT_EQ(product.strategy(), "pipeline-zero2");
  EXPECT_EQ(product, product.on(12)) << "what is settled stays";
}

TEST(Layouts, OfEveryScheduleMayHaveSlicesAndEveryStageOfZero) {
  for (const char* schedule : {"1f1b", "zb-h1", "pipedream", "pipedream-2bw"})
    for (const char* zero : {"0", "1", "2", "3"}) {
      const Layout layout =
          of("pipeline",
             {{"schedule", schedule}, {"pipeline-parallel", "2"}, {"tensor-parallel", "2"}, {"zero", zero}})
              .on(8);
      EXPECT_EQ(layout.mesh(), (comm::MeshShape{2, 2, 2}));
      EXPECT_EQ(layout.asynchronous(), std::string(schedule).starts_with("pipedream"));
    }
}

TEST(Layouts, AreReadFromOptions) {
  const Layout layout = of("auto", {{"pipeline-parallel", "2"},
                                    {"tensor-parallel", "2"},
                                    {"zero", "3"},
                                    {"schedule", "interleaved"},
                                    {"stages-per-rank", "3"},
                                    {"stages", "0,1,2,3,4,5"}})
                            .on(8);
  EXPECT_EQ(layout, (Layout{.data = 2,
                            .staged = true,
                            .pipeline = 2,
                            .sliced = true,
                            .tensor = 2,
                            .zero = 3,
                            .schedule = "interleaved",
                            .stages_per_rank = 3,
                            .stages = {{0, 1, 2, 3, 4, 5}}}));
  const Layout several = of("pipeline", {{"stages", "0x2,6"}}).on(6);
  EXPECT_EQ(several.stages.begins, (std::vector<int64_t>{0, 6}));
  EXPECT_EQ(several.stages.replicas, (std::vector<int>{2, 1}));
  EXPECT_EQ(several.mesh(), (comm::MeshShape{2, 3, 1}));
  EXPECT_EQ(several.on(6), several);
  EXPECT_EQ(of("auto", {{"stages", "0x1,6x1"}, {"pipeline-parallel", "2"}}),
            of("auto", {{"stages", "0,6"}, {"pipeline-parallel", "2"}}));
  LayoutOptions options;
  EXPECT_FALSE(options.set("threads", "2"));
  for (const auto& [option, value] :
       std::vector<std::pair<std::string, std::string>>{{"zero", "4"},
                                                        {"tensor-parallel", "0"},
                                                        {"data-parallel", "2x"},
                                                        {"stages", "0,,2"},
                                                        {"stages", "0x0,2"},
                                                        {"stages", "0x,2"},
                                                        {"stages", "x2,2"},
                                                        {"stages", "0x2x2,2"}})
    EXPECT_THROW(options.set(option, value), InputError) << option;
}

TEST(Layouts, AreParsedFromANameWithOptionsBehindIt) {
  EXPECT_EQ(Layout::parse("zero2"), Layout::of_strategy("zero2"));
  EXPECT_EQ(Layout::parse(" pipeline  --schedule gpipe --stages 0,7 --zero 1"),
            of("pipeline", {{"schedule", "gpipe"}, {"stages", "0,7"}, {"zero", "1"}}));
  EXPECT_TRUE(Layout::parse("tensor --sequence-parallel --data-parallel 2").sequence);
  EXPECT_EQ(Layout::parse("tensor --sequence-parallel --data-parallel 2").data, 2);
  for (const char* const text :
       {"", "pipelin", "ddp 2", "ddp --threads 2", "pipeline --stages", "pipeline schedule gpipe",
        "zero2 --stages 0,7", "ddp --schedule gpipe", "tensor --stages-per-rank 2", "dp --data-parallel 1",
        "ddp --zero 2", "pipeline --zero 4"})
    EXPECT_THROW(Layout::parse(text), InputError) << text;
}

TEST(Layouts, ContradictNoNameThatWasGivenWithTheirOptions) {
  const auto set = [](const std::string& name, const std::string& option, const std::string& value) {
    return of(name, {{option, value}});
  };
  using Rows = std::vector<std::array<std::string, 3>>;
  for (const auto& [name, option, value] : Rows{{"zero1", "zero", "3"},
                                                {"zero1", "zero", "0"},
                                                {"ddp", "zero", "1"},
                                                {"single", "zero", "1"},
                                                {"ps-sync", "zero", "2"},
                                                {"pipeline-zero2", "zero", "3"},
                                                {"ddp", "pipeline-parallel", "2"},
                                                {"zero3", "pipeline-parallel", "2"},
                                                {"dp", "pipeline-parallel", "2"}})
    try {
      set(name, option, value);
      ADD_FAILURE() << name << " --" << option << " " << value;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what())
                    .find("--" + option + " " + value + " and the strategy " + name + " contradict"),
                std::string::npos)
          << error.what();
    }
  for (const auto& [name, option, value] : Rows{{"zero1", "zero", "1"},
                                                {"ddp", "zero", "0"},
                                                {"ddp", "pipeline-parallel", "1"},
                                                {"zero1", "tensor-parallel", "2"},
                                                {"pipeline", "zero", "3"},
                                                {"tensor", "zero", "2"},
                                                {"auto", "zero", "3"},
                                                {"auto", "pipeline-parallel", "2"},
                                                {"pipeline-zero1", "pipeline-parallel", "2"}})
    EXPECT_NO_THROW(set(name, option, value)) << name << " --" << option << " " << value;
}

TEST(Layouts, OfStagesAndSlicesAreTheSameUnderEitherName) {
  const Layout slices = of("tensor", {{"pipeline-parallel", "2"}}).on(4),
               stages = of("pipeline", {{"tensor-parallel", "2"}}).on(4);
  EXPECT_EQ(slices, stages);
  EXPECT_EQ(slices.mesh(), (comm::MeshShape{1, 2, 2}));
  EXPECT_EQ(slices.strategy(), "pipeline");
}

TEST(Layouts, ThatDoNotFitNameTheOptionsAndWhatWould) {
  const std::pair<std::string, std::string> two_stages{"pipeline-parallel", "2"},
      three_slices{"tensor-parallel", "3"};
  refuses(
      of("auto", {two_stages, three_slices}), 8,
      {"--pipeline-parallel 2 --tensor-parallel 3: 8 ranks cannot be divided into pipelines of 2 with tensor "
       "groups of 3",
       "funicular launch -n 6"});
  refuses(of("auto", {two_stages, {"data-parallel", "3"}}), 4,
          {"--pipeline-parallel 2 and --data-parallel 3 take 6 ranks, and there are 4"});
  refuses(of("ddp", {{"data-parallel", "3"}}), 4, {"--data-parallel 3 take 3 ranks, and there are 4"});
  refuses(of("single"), 2, {"\"single\" is for one process, and there are 2 ranks"});
  refuses(of("ps-sync", {three_slices}), 3, {"\"ps-sync\" cannot train a model that is cut into slices"});
  Layout served = of("ps-async");
  served.staged = true;
  refuses(served, 4, {"\"ps-async\" goes neither with --pipeline-parallel nor with --zero"});
  refuses(of("auto", {{"stages", "0x2,4"}, two_stages}), 4,
          {"stages on 2, 1 ranks (--stages) take 3 in a pipeline, and it has 2"});
  refuses(of("pipeline", {{"stages", "0x2,4"}}), 4,
          {"--pipeline-parallel 3: 4 ranks cannot be divided into pipelines of 3"});
  Layout divided;
  divided.sequence = true;
  refuses(divided, 2, {"--sequence-parallel", "--tensor-parallel of at least 2"});
}

}  // namespace
}  // namespace funicular::parallel
