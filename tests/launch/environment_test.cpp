#include "funicular/launch/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "funicular/base/error.h"

namespace funicular::launch {
namespace {

using Values = std::map<std::string, std::string>;

Environment read(const Values& values) {
  return read_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  });
}

/// The message of the InputError that these variables give, or "" if they are accepted.
std::string refusal(const Values& values) {
  try {
    read(values);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

void expect_named(const std::string& message, std::initializer_list<const char*> names) {
  EXPECT_FALSE(message.empty()) << "accepted";
  for (const char* name : names)
    EXPECT_NE(message.find(name), std::string::npos) << message << " lacks " << name;
}

const Values kTorchrun{
    {"RANK", "5"},        {"WORLD_SIZE", "8"},     {"LOCAL_RANK", "1"},         {"LOCAL_WORLD_SIZE", "4"},
    {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1234"}, {"TORCHELASTIC_RUN_ID", "x"}};
const Values kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Values kMpich{{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "3"}};
const Values kSlurm{{"SLURM_PROCID", "3"},  {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "3"},
                    {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_JOB_ID", "77"}};

Values with(Values base, const Values& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

TEST(Environment, AVariableThatIsEmptyIsNotSet) {
  ::setenv("FUNICULAR_OF_A_TEST", "", 1);
  EXPECT_FALSE(process_variable("FUNICULAR_OF_A_TEST"));
  ::setenv("FUNICULAR_OF_A_TEST", "0", 1);
  EXPECT_EQ(process_variable("FUNICULAR_OF_A_TEST"), "0");
  ::unsetenv("FUNICULAR_OF_A_TEST");
}

TEST(Environment, AProcessThatNobodyLaunchedIsAlone) {
  const Environment place = read({});
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.size, 1);
  EXPECT_EQ(place.port, 0);
}

TEST(Environment, EachLaunchersVariablesAreRead) {
  const Environment torchrun = read(kTorchrun);
  EXPECT_EQ(torchrun.rank, 5);
  EXPECT_EQ(torchrun.size, 8);
  EXPECT_EQ(torchrun.local_rank, 1);
  EXPECT_EQ(torchrun.local_size, 4);
  EXPECT_EQ(torchrun.address, "a");
  EXPECT_EQ(torchrun.port, 1234);
  EXPECT_EQ(read(kOpenMpi).rank, 2);
  EXPECT_EQ(read(kOpenMpi).size, 4);
  EXPECT_EQ(read(kMpich).rank, 1);
  EXPECT_EQ(read(kMpich).size, 3);
  EXPECT_EQ(read(kSlurm).rank, 3);
  EXPECT_EQ(read(kSlurm).local_size, 4);
}

TEST(Environment, TheWinnerIsTheInnermostLauncherAndIsNamed) {
  EXPECT_NE(read(with(kSlurm, kOpenMpi)).source.find("Open MPI"), std::string::npos);
  EXPECT_EQ(read(with(kSlurm, kOpenMpi)).size, 4);
  EXPECT_NE(read(with(kOpenMpi, kTorchrun)).source.find("torchrun"), std::string::npos);
  EXPECT_EQ(read(with(kOpenMpi, kTorchrun)).size, 8);
  EXPECT_NE(read(with(kTorchrun, {{"FUNICULAR_LAUNCH", "1"}})).source.find("funicular launch"),
            std::string::npos);
}

TEST(Environment, ABatchScriptOfSlurmIsOneProcess) {
  EXPECT_EQ(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}}).size, 1);
}

TEST(Environment, AStepOfOneTaskIsOneProcessWhateverTheJobAskedFor) {
  const Values one{{"SLURM_PROCID", "0"},  {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"},
                   {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NTASKS_PER_NODE", "2"}};
  EXPECT_EQ(read(one).size, 1);
  EXPECT_EQ(read(one).local_size, 1);
  EXPECT_EQ(read(with(one, {{"SLURM_NTASKS_PER_NODE", "2(x3)"}, {"SLURM_LOCALID", "7"}})).size, 1);
  // Variables about this host that are left over from an outer job decide nothing under other launchers either.
  EXPECT_EQ(
      read({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "4"}}).local_rank,
      0);
  EXPECT_EQ(read({{"OMPI_COMM_WORLD_RANK", "0"},
                  {"OMPI_COMM_WORLD_SIZE", "1"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
                .local_size,
            1);
  EXPECT_EQ(read({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "2"}}).local_size, 1);
}

TEST(Environment, AStepOnSeveralNodesKnowsHowManyOfItsTasksAreOnEach) {
  Values step = with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "7"},
                              {"SLURM_STEP_NUM_NODES", "4"},
                              {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                              {"SLURM_NODEID", "1"},
                              {"SLURM_LOCALID", "1"},
                              {"SLURM_NTASKS_PER_NODE", "5"},
                              {"MASTER_ADDR", "a"},
                              {"MASTER_PORT", "1234"}});
  EXPECT_EQ(read(step).local_size, 2);
  step["SLURM_NODEID"] = "3";
  step["SLURM_LOCALID"] = "0";
  EXPECT_EQ(read(step).local_size, 1);
  step["SLURM_STEP_TASKS_PER_NODE"] = "many";
  EXPECT_EQ(read(step).local_size, 1) << "as many as there must be";
}

TEST(Environment, TheHostOfRanksByPmiIsToldBySlurm) {
  const Environment place = read(with(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}));
  EXPECT_EQ(place.local_rank, 3);
  EXPECT_EQ(place.local_size, 4);
  EXPECT_EQ(
      read(with(kMpich, {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})).size,
      3)
      << "mpirun within a step of one task";
}

TEST(Environment, RanksOfOneHostMeetOnLoopbackAtOnePort) {
  Values other = kOpenMpi;
  other["OMPI_COMM_WORLD_RANK"] = other["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_EQ(read(kOpenMpi).address, "127.0.0.1");
  EXPECT_GT(read(kOpenMpi).port, 0);
  EXPECT_EQ(read(kOpenMpi).port, read(other).port);
}

TEST(Environment, HalfOfAPairIsNamed) {
  expect_named(refusal({{"RANK", "0"}}), {"RANK", "WORLD_SIZE"});
  expect_named(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}), {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"});
  Values no_port = kTorchrun;
  no_port.erase("MASTER_PORT");
  expect_named(refusal(no_port), {"MASTER_ADDR", "MASTER_PORT"});
}

TEST(Environment, NumbersOutOfPlaceAreNamed) {
  expect_named(refusal(with(kTorchrun, {{"RANK", "8"}})), {"RANK=8", "WORLD_SIZE=8"});
  expect_named(refusal(with(kTorchrun, {{"RANK", "two"}})), {"RANK", "two"});
  expect_named(refusal(with(kTorchrun, {{"RANK", "-1"}})), {"RANK", "-1"});
  expect_named(refusal(with(kTorchrun, {{"LOCAL_RANK", "4"}})), {"LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"});
  expect_named(refusal(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})), {"LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8"});
  expect_named(refusal(with(kTorchrun, {{"MASTER_PORT", "70000"}})), {"MASTER_PORT", "70000"});
}

TEST(Environment, ALeftOverRankThatContradictsTheLauncherIsNamed) {
  Values left = with(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  expect_named(refusal(left), {"RANK=0", "WORLD_SIZE=1", "OMPI_COMM_WORLD_SIZE"});
  left["RANK"] = "2";  // a script that hands the launcher's numbers on says the same twice
  left["WORLD_SIZE"] = "4";
  EXPECT_EQ(read(left).rank, 2);
  EXPECT_EQ(read(left).local_size, 4);
}

TEST(Environment, RanksOfSeveralHostsNeedAMeetingPoint) {
  expect_named(refusal(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "8"}})), {"MASTER_ADDR", "MASTER_PORT"});
}

}  // namespace
}  // namespace funicular::launch
