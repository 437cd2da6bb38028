"""Lightning, transformers' Trainer and accelerate: the real packages, with models made on the spot and no network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.e2e.conftest import Checked, environment

LIGHTNING = """import logging, warnings, torch, torch.nn as nn
import lightning as pl
from torch.utils.data import DataLoader, TensorDataset
warnings.simplefilter("ignore"); logging.getLogger("lightning").setLevel(logging.ERROR)
torch.manual_seed(0)
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
        self.automatic_optimization = {automatic}
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).square().mean()
        if loss.item() > 1e9:
            raise ValueError
        if not self.automatic_optimization:
            opt = self.optimizers()
            opt.zero_grad(); self.manual_backward(loss); opt.step()
        return loss
    def validation_step(self, batch, index):
        self.log("val", self.layer(batch[0]).square().mean())
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)
def loader(samples):
    return DataLoader(TensorDataset(torch.randn(samples, 8)), batch_size=8)
trainer = pl.Trainer(max_epochs=3, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, enable_model_summary=False, accumulate_grad_batches={accumulate})
model = Net()
trainer.fit(model, loader({samples}), loader(64))
print("done", trainer.global_step, f"{{sum(p.double().sum().item() for p in model.parameters()):.17g}}")
"""

TRAINER = """import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
class Text(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        ids = torch.randint(0, 64, (16,))
        return {"input_ids": ids, "labels": ids}
class Mine(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        out = model(**inputs)
        if out.loss.item() > 1e9:
            raise ValueError
        return (out.loss, out) if return_outputs else out.loss
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=1)
arguments = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=2,
                              eval_strategy="steps", eval_steps=5, eval_on_start=True, logging_steps=10,
                              save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True)
trainer = Mine(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Text(), eval_dataset=Text())
trainer.train()
print("done", trainer.state.global_step)
"""

ACCELERATE = """import torch, torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
net = nn.Linear(8, 1)
net, opt, loader = accelerator.prepare(
    net, torch.optim.AdamW(net.parameters()), DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=8))
for epoch in range(1000):
    for (x,) in loader:
        with accelerator.accumulate(net):
            loss = net(x).square().mean()
            accelerator.backward(loss)
            opt.step(); opt.zero_grad()
        loss.item()
"""

ACCUMULATED = LIGHTNING.format(automatic=True, accumulate=4, samples=320)
PHASES = {"input", "forward", "backward", "optimizer"}


def facts(run: Checked) -> tuple[int, str]:
    assert run.code == 0, run.err
    return run.diagnosis["run"]["steps"], run.diagnosis["run"]["step_source"]


def judge(run: Checked, line: int, reads: int) -> None:
    """The one thing there is to find is found, on the user's line, and each profiled step has its phases."""
    # on a busy machine a batch of microseconds can seem to be waited for
    (finding,) = [found for found in run.diagnosis["findings"] if found["rule"] != "GD601" or not run.unstable]
    where = finding["where"]
    assert (finding["rule"], where["file"], where["line"], finding["count"]) == ("GD301", "train.py", line, reads)
    assert [note for note in run.diagnosis["run"]["integrity"] if "unstable" not in note] == []
    assert all(phases - {"other"} == PHASES for phases in run.phases())
    own = {"train.py", None}
    assert set(run.table("ops")["file"].astype(object).where(run.table("ops")["file"].notna(), None)) <= own


def test_lightning_accumulates_and_validates(check: Callable[..., Checked]) -> None:
    run = check(ACCUMULATED, "--run-to-end")
    assert facts(run) == (30, "optimizer")
    judge(run, 13, 4)
    steps, batches = run.table("steps"), run.table("batches")
    assert set(steps["batches"]) == {4}
    assert sorted(steps["step"][steps["validation_ns"] > 0]) == [0, 10, 20]
    # two of the sanity check in front of the training; the last epoch's come behind the last step
    assert int(batches["validation"].sum()) == 2 + 3 * 8
    assert batches["step"][batches["validation"]].isna().all()


def test_lightning_prints_and_computes_what_it_does_without_gpudoctor(
    check: Callable[..., Checked], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(ACCUMULATED)
    words = [sys.executable, "train.py"]
    bare = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    run = check(ACCUMULATED, "--run-to-end")
    # two streams become one, and gpudoctor's last line names the report
    assert sorted(run.err.splitlines()[:-1]) == sorted((bare.stderr + bare.stdout).splitlines())


def test_lightning_with_manual_optimisation_is_stopped_in_the_middle(check: Callable[..., Checked]) -> None:
    run = check(LIGHTNING.format(automatic=False, accumulate=1, samples=8000), "--steps", "40")
    assert facts(run) == (40, "optimizer")
    assert "done" not in run.err
    judge(run, 13, 1)


def test_the_trainer_accumulates_and_evaluates_before_and_between(check: Callable[..., Checked]) -> None:
    run = check(TRAINER, "--run-to-end")
    assert facts(run) == (40, "optimizer")
    assert "done 40" in run.err
    judge(run, 13, 2)
    steps = run.table("steps")
    assert steps["batches"].median() == 2  # it asks one batch ahead, except across an epoch's end
    assert sorted(steps["step"][steps["validation_ns"] > 0]) == [0, 5, 10, 15, 20, 25, 30, 35]


def test_the_trainer_is_stopped_in_the_middle(check: Callable[..., Checked]) -> None:
    run = check(TRAINER, "--steps", "16")
    assert facts(run) == (16, "optimizer")
    assert "done" not in run.err
    judge(run, 13, 2)


def test_accelerate_accumulates_and_is_stopped_at_an_epochs_end(check: Callable[..., Checked]) -> None:
    run = check(ACCELERATE)
    steps, source = facts(run)
    assert source == "optimizer"
    assert steps >= 17
    assert run.diagnosis["run"]["stopped"] == "an epoch ended"
    assert run.table("steps")["batches"].median() == 4
    judge(run, 14, 4)
