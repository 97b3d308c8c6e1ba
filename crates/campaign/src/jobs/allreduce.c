/* Ranks that compute and then meet in an Allreduce, in a loop.
 *
 *     allreduce SECONDS SEED MEAN_SECONDS SPREAD STUCK_RANK CPU...
 *
 * With a SPREAD of 0, ranks compute for exponentially distributed times. Else the times are normally
 * distributed, with SPREAD as the standard deviation in units of MEAN_SECONDS. Rank r is bound to the r-th CPU. STUCK_RANK (-1: none) computes until the end and never
 * meets the others. Ranks that wait yield the CPU, as MPI libraries do where nodes are shared. */
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZE 96

static double a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];

static uint64_t state;

/* Uniform between zero and one, by splitmix64. */
static double draw(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* A normal deviate, by Box and Muller. */
static double deviate(void)
{
    return sqrt(-2 * log(1 - draw())) * cos(2 * M_PI * draw());
}

/* How long a rank computes, in units of the mean. */
static double draw_time(double spread)
{
    return spread > 0 ? 1 + spread * deviate() : -log(1 - draw());
}

static double multiply(void)
{
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++) {
            double sum = 0;
            for (int k = 0; k < SIZE; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
    return c[SIZE - 1][SIZE - 1];
}

static void meet(const void *mine, void *all, MPI_Datatype type, MPI_Op op)
{
    MPI_Request request;
    int is_done = 0;
    MPI_Iallreduce(mine, all, 1, type, op, MPI_COMM_WORLD, &request);
    for (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE); !is_done; MPI_Test(&request, &is_done, MPI_STATUS_IGNORE))
        sched_yield();
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 6 + ranks) {
        fprintf(stderr, "usage: allreduce SECONDS SEED MEAN_SECONDS SPREAD STUCK_RANK CPU...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    double seconds = atof(argv[1]), mean = atof(argv[3]), spread = atof(argv[4]);
    int is_stuck = rank == atoi(argv[5]), has_stuck = atoi(argv[5]) >= 0;
    state = strtoull(argv[2], NULL, 10) + (uint64_t)rank * 0x5851f42d4c957f2du;

    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[6 + rank]), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
        perror("sched_setaffinity");

    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++)
            a[i][j] = draw(), b[i][j] = draw();

    double end = MPI_Wtime() + seconds, sum = 0;
    /* All ranks have to leave after the same meeting, so the meeting decides. */
    for (int is_over = 0; !is_over;) {
        double until = is_stuck ? end : MPI_Wtime() + mean * draw_time(spread);
        if (until > end)
            until = end;
        while (MPI_Wtime() < until)
            sum += multiply();
        int mine = MPI_Wtime() >= end || has_stuck;
        double all;
        meet(&mine, &is_over, MPI_INT, MPI_MAX);
        meet(&sum, &all, MPI_DOUBLE, MPI_SUM);
    }
    MPI_Finalize();
    return 0;
}
