"""From nothing to a trained policy: one GRPO job on a group of this machine."""

import plexrl

if __name__ == "__main__":
    job = plexrl.grpo(model=plexrl.tiny_base(), task="ascending", iterations=40)
    with plexrl.LocalCluster(groups=1, store="quickstart-store") as cluster:
        run = cluster.submit(job)
        run.result()
        for row in run.metrics()[::8]:
            print(f"iteration {row['iteration']}: reward {row['reward_mean']:.2f}")
        print("weights", run.export("quickstart-model"))
