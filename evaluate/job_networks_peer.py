"""Synthetic jobs of the ctgan package of SDV, with its own preprocessing: a CSV file in the layout of the training trace.

Called by evaluate/job_networks.py with a Python that has the packages of bench/python-packages.txt.
Arguments: training CSV, output CSV, seed, epochs.
"""

import os
import sys

os.environ["OMP_NUM_THREADS"] = "2"

import ctgan
import numpy
import pandas
import torch

DISCRETE = ["user", "new_status"]
# A running number and a constant.
NOT_LEARNT = ["u_id", "gpu_num"]


def main():
    table, out, seed, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    frame = pandas.read_csv(table)
    model = ctgan.CTGAN(epochs=epochs, verbose=False)
    model.set_random_state(seed)
    model.fit(frame.drop(columns=NOT_LEARNT), DISCRETE)
    made = model.sample(len(frame))
    made["u_id"] = range(len(made))
    made["gpu_num"] = frame["gpu_num"].iloc[0]
    made[frame.columns].to_csv(out, index=False)


if __name__ == "__main__":
    main()
