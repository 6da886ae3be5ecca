"""Every option of every command is shown to do what it says: the tables in options/ have a row for each."""

import re

from harness import *
from options import (answering, augmenting, chaining, comparing, deciding, distilling, embedders, embedding, exiting, machine, masking, measuring, mining, own, probing, processes,
                     rerankers, soft, tokenizing, training, vocabulary, vocabulary_training, writing)
from options.lab import Lab

TRAINING = {"batches": training.BATCHES, "optimisation": training.OPTIMISATION, "saving": training.SAVING,
            "machine": machine.MACHINE, "ranks": machine.RANKS}
TABLES = {"tokenize": {"input": tokenizing.TOKENIZE},
          "pretrain": {"own": own.PRETRAIN, "masking": masking.MASKING, **TRAINING},
          "vocabulary": {"propose": vocabulary.PROPOSE, "extend": vocabulary.EXTEND, "train": vocabulary_training.TRAIN},
          "mask": {"own": masking.MASK},
          "finetune": {"own": own.FINETUNE, "soft": soft.SOFT, "embedders": embedders.EMBEDDERS, "rerankers": rerankers.RERANKERS, **TRAINING},
          "vectors": {"own": augmenting.VECTORS},
          "augment": {"own": augmenting.AUGMENT},
          "distill": {"own": distilling.DISTILL, **TRAINING},
          "probe": {"layers": probing.PROBE},
          "evaluate": {"input": answering.EVALUATE},
          "average": {"weights": soft.AVERAGE},
          "label-errors": {"suspects": soft.LABEL_ERRORS},
          "predict": {"input": answering.PREDICT},
          "embed": {"vectors": embedding.EMBED},
          "search": {"neighbours": embedding.SEARCH},
          "mine": {"negatives": mining.MINE},
          "compare": {"scores": comparing.COMPARE},
          "chain": {"steps": chaining.CHAIN},
          "report": {"page": chaining.REPORT},
          "launch": {"ranks": processes.LAUNCH},
          "prove": {"layouts": processes.PROVE},
          "plan": {"schedules": processes.PLAN},
          "bench": {"time": measuring.TIME, "others": measuring.OTHERS},
          "doctor": {"checks": tokenizing.DOCTOR},
          "completion": {"shell": tokenizing.COMPLETION}}


class EveryOption(ProgramTest):
    def commands(self):
        return re.findall(r"^  ([a-z-]+)  ", self.succeeds("--help").out, re.M)

    def test_that_a_command_lists_has_a_row_and_every_row_is_of_one(self):
        problems = [f"there is no command {command}" for command in set(TABLES) - set(self.commands())]
        for command in self.commands():
            listed = re.findall(r"^  (?:-\w+, )*(--[a-z][a-z0-9-]*)", self.succeeds(command, "--help-all").out, re.M)
            self.assertIn("--config", listed)
            words = self.succeeds("completion", "bash", command).out
            completed = re.search(rf"^_funicular_words\[{command}\]=\"(.*)\"$", words, re.M).group(1).split()
            self.assertEqual(sorted(listed), sorted(completed), f"--help and completion of {command}")
            rows = [option for table in TABLES.get(command, {}).values() for option in table]
            problems += [f"funicular {command} {option} has no row that shows what it does" for option in set(listed) - set(rows)]
            problems += [f"funicular {command} has no option {option}, and the table has a row" for option in set(rows) - set(listed)]
            problems += [f"funicular {command} {option} has two rows" for option in set(rows) if rows.count(option) > 1]
        self.assertEqual(problems, [])

    def test_of_every_table_is_tested(self):
        tests = {name[len("test_"):] for name in vars(DoesWhatItSays) if name.startswith("test_")}
        self.assertEqual(tests, {f"{command.replace('-', '')}_{table}" for command, tables in TABLES.items() for table in tables})


class DoesWhatItSays(Lab):
    def show(self):
        """The rows of the command and table that the test is named after."""
        command, table = self._testMethodName[len("test_"):].split("_")
        command = next(name for name in TABLES if name.replace("-", "") == command)
        self.check(command, TABLES[command][table])

    def test_tokenize_input(self):
        self.show()

    def test_pretrain_own(self):
        self.show()

    def test_pretrain_masking(self):
        self.show()

    def test_vocabulary_propose(self):
        self.show()

    def test_vocabulary_extend(self):
        self.show()

    def test_vocabulary_train(self):
        self.show()

    def test_mask_own(self):
        self.show()

    def test_vectors_own(self):
        self.show()

    def test_augment_own(self):
        self.show()

    def test_pretrain_batches(self):
        self.show()

    def test_pretrain_optimisation(self):
        self.show()

    def test_pretrain_saving(self):
        self.show()

    def test_pretrain_machine(self):
        self.show()

    def test_pretrain_ranks(self):
        self.show()

    def test_finetune_own(self):
        self.show()

    def test_finetune_embedders(self):
        self.show()

    def test_finetune_rerankers(self):
        self.show()

    def test_finetune_soft(self):
        self.show()

    def test_average_weights(self):
        self.show()

    def test_labelerrors_suspects(self):
        self.show()

    def test_finetune_batches(self):
        self.show()

    def test_finetune_optimisation(self):
        self.show()

    def test_finetune_saving(self):
        self.show()

    def test_finetune_machine(self):
        self.show()

    def test_finetune_ranks(self):
        self.show()

    def test_embed_vectors(self):
        self.show()

    def test_search_neighbours(self):
        self.show()

    def test_mine_negatives(self):
        self.show()

    def test_distill_own(self):
        self.show()

    def test_distill_batches(self):
        self.show()

    def test_distill_optimisation(self):
        self.show()

    def test_distill_saving(self):
        self.show()

    def test_distill_machine(self):
        self.show()

    def test_distill_ranks(self):
        self.show()

    def test_probe_layers(self):
        self.show()

    def test_evaluate_input(self):
        self.show()

    def test_predict_input(self):
        self.show()

    def test_compare_scores(self):
        self.show()

    def test_chain_steps(self):
        self.show()

    def test_report_page(self):
        self.show()

    def test_launch_ranks(self):
        self.show()

    def test_prove_layouts(self):
        self.show()

    def test_plan_schedules(self):
        self.show()

    def test_bench_time(self):
        self.show()

    @counting
    def test_bench_others(self):
        self.show()

    @counting
    def test_doctor_checks(self):
        self.show()

    def test_completion_shell(self):
        self.show()


class HiddenSwitches(Lab):
    """Spellings of other programs that --help leaves out."""

    def test_stand_for_values_of_other_options(self):
        self.command = "finetune"
        self.assertEqual(self.train(gradient_checkpointing=True).file["options"]["recompute"], "full")
        self.assertEqual(self.train(bf16=True, precision=None).file["precision"], "bf16")
        self.assertEqual(self.train(fp16=True, precision=None).file["precision"], "fp16")
        self.assertEqual(self.train(use_cpu=True).weights, self.train().weights)


class HeldOutDocuments(Lab):
    """Of --eval-fraction."""

    LENGTHS = [5 + number for number in range(10)]

    def run_with(self, number, texts):
        run = self.train(train=self.data(f"documents-{number}", texts), eval_fraction=0.3, optim="sgd", learning_rate=1e-30,
                         max_steps=None, num_train_epochs=3, max_length=10)
        return run.evaluations[-1]["eval_loss"], run.state("momentum_buffer"), run.file["data"]

    def test_are_evaluated_on_and_never_trained_on_and_the_others_the_other_way_round(self):
        self.command = "pretrain"
        texts = self.texts(self.LENGTHS)
        loss, gradients, data = self.run_with("all", texts)
        pieces = [-(-length // 8) for length in self.LENGTHS]  # of a document: each has at most 10 tokens
        held_out = []
        for number, length in enumerate(self.LENGTHS):
            other = " ".join([VOCABULARY[-1]] * length)  # as many tokens, other words
            changed_loss, changed_gradients, _ = self.run_with(number, texts[:number] + [other] + texts[number + 1:])
            evaluated, trained = changed_loss != loss, changed_gradients != gradients
            self.assertNotEqual(evaluated, trained, f"document {number}")
            held_out += [number] * evaluated
        self.assertTrue(0 < len(held_out) < len(texts))
        self.assertEqual(data["evaluation"]["samples"], sum(pieces[number] for number in held_out))
        self.assertEqual(data["train"]["samples"] + data["evaluation"]["samples"], sum(pieces))


if __name__ == "__main__":
    unittest.main()
