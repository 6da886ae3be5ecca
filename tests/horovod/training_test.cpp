// Claims about training under Horovod's interface: against one process on the joined batch.

#include <algorithm>

#include "ranks.h"

namespace funicular::horovod {
namespace {

using namespace horovod::test;

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first{6, 8}, second{8, 3}, sometimes{6, 3};
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("sometimes", sometimes);
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, bool uses_all = true) {
    const at::Tensor out = second(torch::tanh(first(x)));
    return uses_all ? out + sometimes(x) : out;
  }
};
TORCH_MODULE(Net);

struct Data {
  at::Tensor x, y;
  Data part(int index, int parts) const {
    return {x.chunk(parts)[size_t(index)], y.chunk(parts)[size_t(index)]};
  }
};
Data data_of(int step, int64_t rows) {
  torch::manual_seed(100 + step);
  return {torch::randn({rows, 6}, torch::kDouble), torch::randn({rows, 3}, torch::kDouble)};
}
at::Tensor loss_of(Net& net, const Data& data, bool uses_all = true) {
  return torch::mse_loss(net->forward(data.x, uses_all), data.y);
}

/// The same start on all ranks and in the single process.
Net make_net() {
  torch::manual_seed(5);
  return {};
}

void expect_near(const Net& found, const Net& wanted, double bound = 1e-12) {
  for (const auto& [name, parameter] : wanted->named_parameters().pairs())
    EXPECT_LE((found->named_parameters()[name] - parameter).abs().max().item<double>(), bound) << name;
}

enum class Kind { sgd, adam, adamw };
std::unique_ptr<torch::optim::Optimizer> make_optimizer(Kind kind, const Net& net) {
  const std::vector<at::Tensor> parameters = net->parameters();
  if (kind == Kind::adam)
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
  if (kind == Kind::adamw)
    return std::make_unique<torch::optim::AdamW>(parameters,
                                                 torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
}

class Training : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(Ranks, Training, testing::Values(1, 2, 3));

TEST_P(Training, EqualsOneProcessOnTheJoinedBatch) {
  with_horovod(ranks(), [] {
    const std::vector<DistributedOptimizerOptions> variants{
        {}, {.op = Sum}, {.gradient_predivide_factor = 2.0 * size()}, {.backward_passes_per_step = 2}};
    for (const Kind kind : {Kind::sgd, Kind::adam, Kind::adamw})
      for (const DistributedOptimizerOptions& options : variants) {
        Net alone = make_net(), net = make_net();
        if (rank() != 0)
          for (at::Tensor& parameter : net->parameters()) parameter.detach().add_(rank());
        broadcast_parameters(*net, 0);
        const auto single = make_optimizer(kind, alone), own = make_optimizer(kind, net);
        DistributedOptimizer optimizer(*own, net->named_parameters(), options);
        const int passes = options.backward_passes_per_step;
        for (int step = 0; step < 6; ++step) {
          const Data data = data_of(step, 12 * size());
          single->zero_grad();
          (loss_of(alone, data) * (options.op == Sum ? size() : passes)).backward();
          single->step();
          optimizer.zero_grad();
          for (int pass = 0; pass < passes; ++pass)
            loss_of(net, data.part(rank(), size()).part(pass, passes)).backward();
          optimizer.step();
        }
        expect_near(net, alone);
      }
  });
}

/// Its backward pass does not end before a reduction has.
struct WaitsForAReduction : torch::autograd::Function<WaitsForAReduction> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (counters().tensors == 0 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GT(counters().tensors, 0) << "nothing was reduced while the backward pass went on";
    return gradients;
  }
};

TEST(BackwardPass, GoesOnWhileGradientsAreReduced) {
  with_horovod(2, [] {
    const at::Tensor early = at::ones({4}).requires_grad_(), late = at::ones({4}).requires_grad_();
    torch::optim::SGD sgd({early, late}, 0.5);
    DistributedOptimizer optimizer(sgd);
    (WaitsForAReduction::apply(early * 2) * late).sum().backward();
    optimizer.step();
    expect_same(early.detach(), at::zeros({4}));
    expect_same(late.detach(), at::zeros({4}));
  });
}

TEST_P(Training, AParameterWithoutGradientOnSomeRanksGetsThatOfTheOthers) {
  with_horovod(ranks(), [] {
    Net alone = make_net(), net = make_net();
    const auto single = make_optimizer(Kind::sgd, alone), own = make_optimizer(Kind::sgd, net);
    DistributedOptimizer optimizer(*own, net->named_parameters());
    for (int step = 0; step < 4; ++step) {
      const Data data = data_of(step, 5 * size());
      single->zero_grad();
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (int of = 0; of < size(); ++of)
        loss = loss + loss_of(alone, data.part(of, size()), (of + step) % 2 == 0) / size();
      loss.backward();
      single->step();
      optimizer.zero_grad();
      loss_of(net, data.part(rank(), size()), (rank() + step) % 2 == 0).backward();
      optimizer.step();
    }
    // Alone, sometimes.weight has no gradient in odd steps and keeps its momentum; with zeros it moves on.
    if (size() > 1) expect_near(net, alone);
  });
}

TEST_P(Training, GradientsCanBeClippedBetweenReductionAndStep) {
  with_horovod(ranks(), [] {
    for (const bool skips : {true, false}) {
      Net alone = make_net(), net = make_net();
      const auto single = make_optimizer(Kind::sgd, alone), own = make_optimizer(Kind::sgd, net);
      DistributedOptimizer optimizer(*own, net->named_parameters(), {.op = Sum});
      for (int step = 0; step < 4; ++step) {
        const Data data = data_of(step, 4 * size());
        single->zero_grad();
        (loss_of(alone, data) * size()).backward();
        torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.05);
        single->step();
        optimizer.zero_grad();
        loss_of(net, data.part(rank(), size())).backward();
        optimizer.synchronize();
        torch::nn::utils::clip_grad_norm_(net->parameters(), 0.05);
        std::shared_ptr<void> skip;
        if (skips) skip = optimizer.skip_synchronize();
        optimizer.step();
      }
      expect_near(net, alone);
    }
  });
}

TEST_P(Training, AClosuresGradientsAreReducedEachTime) {
  with_horovod(ranks(), [] {
    Net alone = make_net(), net = make_net();
    torch::optim::LBFGS single(alone->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4)),
        own(net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4));
    DistributedOptimizer optimizer(own, net->named_parameters());
    const Data data = data_of(0, 6 * size());
    for (int step = 0; step < 2; ++step) {
      single.step([&] {
        single.zero_grad();
        at::Tensor loss = loss_of(alone, data);
        loss.backward();
        return loss;
      });
      optimizer.step([&] {
        optimizer.zero_grad();
        at::Tensor loss = loss_of(net, data.part(rank(), size()));
        loss.backward();
        return allreduce(loss.detach(), "loss");
      });
    }
    expect_near(net, alone, 1e-10);
  });
}

TEST_P(Training, SixteenBitGradientsTrainNearlyTheSame) {
  with_horovod(ranks(), [] {
    Net alone = make_net(), net = make_net();
    const auto single = make_optimizer(Kind::sgd, alone), own = make_optimizer(Kind::sgd, net);
    DistributedOptimizer optimizer(*own, net->named_parameters(), {.compression = Compression::fp16});
    for (int step = 0; step < 5; ++step) {
      const Data data = data_of(step, 4 * size());
      single->zero_grad();
      loss_of(alone, data).backward();
      single->step();
      optimizer.zero_grad();
      loss_of(net, data.part(rank(), size())).backward();
      optimizer.step();
    }
    expect_near(net, alone, 1e-3);
    if (size() > 1) {
      EXPECT_GT((net->first->weight - alone->first->weight).abs().max().item<double>(), 1e-9) << "not narrow";
    }
    const at::Tensor each = allgather(net->first->weight.detach().unsqueeze(0));
    for (int of = 0; of < size(); ++of) EXPECT_TRUE(at::equal(each[of], each[0])) << "the replicas differ";
  });
}

TEST_P(Training, RanksWithFewerBatchesJoin) {
  with_horovod(ranks(), [] {
    Net alone = make_net(), net = make_net();
    const auto single = make_optimizer(Kind::sgd, alone), own = make_optimizer(Kind::sgd, net);
    DistributedOptimizer optimizer(*own, net->named_parameters());
    const auto batches_of = [](int of) { return 2 + of; };
    for (int step = 0; step < batches_of(size() - 1); ++step) {
      const Data data = data_of(step, 4 * size());
      single->zero_grad();
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (int of = 0; of < size(); ++of)
        if (step < batches_of(of)) loss = loss + loss_of(alone, data.part(of, size())) / size();
      loss.backward();
      single->step();
      if (step >= batches_of(rank())) continue;
      optimizer.zero_grad();
      loss_of(net, data.part(rank(), size())).backward();
      optimizer.step();
    }
    EXPECT_EQ(join(), size() - 1);
    broadcast_parameters(*net, size() - 1);
    expect_near(net, alone);
  });
}

TEST_P(Training, MistakesAreNamed) {
  with_horovod(ranks(), [] {
    Net net = make_net();
    const auto own = make_optimizer(Kind::sgd, net);
    const auto names = net->named_parameters();
    const Data data = data_of(0, 4);
    {
      DistributedOptimizer optimizer(*own, names);
      loss_of(net, data).backward();
      expect_in(failure<InputError>([&] { optimizer.zero_grad(); }), {"zero_grad()", "before step()"});
      expect_in(failure<InputError>([&] { optimizer.set_backward_passes_per_step(2); }), {"between"});
      expect_in(failure<InputError>([&] { loss_of(net, data).backward(); }),
                {"allreduce.", "backward_passes_per_step"});
      optimizer.synchronize();
      optimizer.zero_grad();
      expect_in(failure<InputError>([&] { DistributedOptimizer(*own, names); }), {"hook"});
      optimizer.set_backward_passes_per_step(2);
      loss_of(net, data).backward();
      loss_of(net, data).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    loss_of(net, data).backward();  // the hooks are gone
    loss_of(net, data).backward();
    NamedTensors some;
    some.insert("first.weight", net->first->weight);
    expect_in(failure<InputError>([&] { DistributedOptimizer(*own, some); }), {"not among the named"});
    EXPECT_THROW(DistributedOptimizer(*own, names, {.op = Max}), InputError);
    EXPECT_THROW(DistributedOptimizer(*own, names, {.backward_passes_per_step = 0}), InputError);
    EXPECT_THROW(DistributedOptimizer(*own, names, {.op = Sum, .gradient_predivide_factor = 2}), InputError);
    EXPECT_NO_THROW(DistributedOptimizer(*own, names));
  });
}

TEST_P(Training, SparseGradientsBecomeDenseOnRequest) {
  with_horovod(ranks(), [] {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    torch::optim::SGD sgd(table->parameters(), 1.0);
    {
      DistributedOptimizer optimizer(sgd);
      expect_in(failure<InputError>([&] { table(at::zeros({1}, at::kLong)).sum().backward(); }),
                {"sparse_as_dense"});
    }
    torch::NoGradGuard no_gradient;
    table->weight.zero_();
    table->weight.mutable_grad() = at::Tensor();
    DistributedOptimizer optimizer(sgd, NamedTensors(), {.op = Sum, .sparse_as_dense = true});
    {
      const at::AutoGradMode gradient(true);
      table(at::full({1}, rank(), at::kLong)).sum().backward();
    }
    optimizer.step();
    expect_same(table->weight.detach(),
                at::arange(5).lt(size()).to(at::kFloat).neg().unsqueeze(1).expand({5, 2}));
  });
}

}  // namespace
}  // namespace funicular::horovod
