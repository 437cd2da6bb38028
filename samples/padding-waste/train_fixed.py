"""Is a sequence of brackets balanced? A small transformer learns it from strings of different lengths."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader

PAD, OPEN, CLOSE, OTHER = 0, 1, 2, 3
LONGEST_EVER = 160


def make_string(generator):
    """Token ids and whether the brackets in them match; half of the strings are spoiled in one place."""
    tokens, depth = [], 0
    for left in range(generator.randint(40, 56), 0, -1):
        token = generator.choice((OPEN, OTHER)) if depth == 0 else generator.choice((OPEN, CLOSE, OTHER))
        token = CLOSE if depth >= left else token
        depth += {OPEN: 1, CLOSE: -1, OTHER: 0}[token]
        tokens.append(token)
    balanced = generator.random() < 0.5
    if not balanced:
        place = generator.randrange(len(tokens))
        tokens[place] = tokens[place] % 3 + 1
    return tokens, float(balanced)


def collate(strings):
    width = max(len(tokens) for tokens, _ in strings)
    ids = torch.full((len(strings), width), PAD)
    for row, (tokens, _) in zip(ids, strings):
        row[: len(tokens)] = torch.tensor(tokens)
    return ids, torch.tensor([label for _, label in strings])


class Judge(nn.Module):
    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(4, width, padding_idx=PAD)
        self.places = nn.Parameter(0.02 * torch.randn(LONGEST_EVER, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)

    def forward(self, ids):
        padding = ids == PAD
        hidden = self.tokens(ids) + self.places[: ids.shape[1]]
        hidden = self.encoder(hidden, src_key_padding_mask=padding)
        kept = ~padding.unsqueeze(-1)
        return self.head((hidden * kept).sum(1) / kept.sum(1)).squeeze(-1)


def main():
    torch.manual_seed(11)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    generator = random.Random(11)
    strings = [make_string(generator) for _ in range(1280)]
    loader = DataLoader(strings, batch_size=32, shuffle=True, collate_fn=collate, pin_memory=device.type == "cuda")
    model = Judge().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loss_of = nn.BCEWithLogitsLoss()
    for epoch in range(1):
        total = torch.zeros((), device=device)
        for ids, labels in loader:
            ids, labels = ids.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            loss = loss_of(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
