"""usage: make.py OUT: what scripts save with torch.distributed.checkpoint, OLMo-core's directory, ShardedTensors by torch.save; each beside one torch file of the same"""
import os, sys, pickle, random, json, shutil, functools, warnings, logging
import numpy as np, torch, torch.nn as nn, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, StateDictOptions
warnings.filterwarnings('ignore'); logging.disable(logging.CRITICAL)
out = sys.argv[1]
def run(seed=0, opt=torch.optim.SGD, **kw):
    torch.manual_seed(seed); m = nn.Linear(3, 2)
    o = opt([{'params': [m.weight], 'weight_decay': .1}, {'params': [m.bias], 'lr': .02}], lr=.1, **kw); s = torch.optim.lr_scheduler.StepLR(o, 3, .5)
    for _ in range(4):
        m(torch.randn(4, 3)).square().mean().backward(); o.step(); o.zero_grad(); s.step()
    return m, o, s
def both(name, sd, as_torch=None):
    dcp.save(sd, checkpoint_id=f'{out}/{name}/ckpt'); torch.save(as_torch or sd, f'{out}/{name}/whole.pt')
flat = StateDictOptions(flatten_optimizer_state_dict=True)
def main():
    m, o, s = run(momentum=.9); a, b = get_state_dict(m, o); c, d = get_state_dict(m, o, options=flat)
    rest = {'sched': s.state_dict(), 'at': {'global_step': 4}}
    both('script_flat', {'app': {'net': c, 'optim': d}, **rest}, {'app': {'net': a, 'optim': b}, **rest})
    n, p, r = run(1)
    both('script_numbers', {'G': m.state_dict(), 'D': n.state_dict(), 'opts': [o.state_dict(), p.state_dict()], 'scheds': [s.state_dict(), r.state_dict()], 'it': 4})
    n2 = nn.ModuleDict({'a': m, 'b': n}); x, y = get_state_dict(n2, [o, p], options=flat)
    dcp.save({'model': x, 'optim': y, 'sched': {'a': s.state_dict(), 'b': r.state_dict()}, 'step': 4}, checkpoint_id=f'{out}/script_two/ckpt')
    tune(a, b)
    both('script_olmo/step4/model_and_optim', {'model': c, 'optim': d}); shutil.move(f'{out}/script_olmo/step4/model_and_optim/whole.pt', f'{out}/script_olmo/whole.pt')
    for f in os.listdir(q := f'{out}/script_olmo/step4/model_and_optim/ckpt'): shutil.move(f'{q}/{f}', f'{out}/script_olmo/step4/model_and_optim')
    os.rmdir(q); os.makedirs(f'{out}/script_olmo/step4/train')
    torch.save({'model': a, 'optim': b}, f'{out}/script_olmo/whole.pt')
    for rank in range(2):
        random.seed(rank); np.random.seed(rank); torch.manual_seed(rank); v = lambda v, s: {'version': v, 'state': s}
        torch.save({'global_step': 4, 'global_train_tokens_seen': 64, 'max_steps': 40, 'data_loader': {'epoch': 1, 'batches_processed': 4, 'seed': 0}, 'epoch': 1, 'world_size': 2, 'callbacks': {},
                    'rng': {'python': v((3, 11), random.getstate()), 'numpy': v((2, 1), np.random.get_state()), 'torch': v((2, 15), torch.get_rng_state()), 'cuda': None}}, f'{out}/script_olmo/step4/train/rank{rank}.pt')
    json.dump({'version': '3.0.0'}, open(f'{out}/script_olmo/step4/.metadata.json', 'w'))
def tune(a, b):
    from safetensors.torch import save_file
    for d in ('epoch_0', 'recipe_state'): os.makedirs(f'{out}/script_tune/ckpt/{d}')
    save_file(a, f'{out}/script_tune/ckpt/epoch_0/model-00001-of-00001.safetensors')
    torch.save({'optimizer': b, 'seed': 1, 'epochs_run': 1, 'total_epochs': 3, 'max_steps_per_epoch': 4, 'dataloader': None}, f'{out}/script_tune/ckpt/recipe_state/recipe_state.pt')
def fsdp(rank):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29577'); dist.init_process_group('gloo', rank=rank, world_size=2)
    from torch.distributed.fsdp import FullyShardedDataParallel as F, StateDictType, FullStateDictConfig
    torch.manual_seed(0); m = F(nn.Linear(3, 2), device_id=torch.device('cpu'), use_orig_params=True)
    o = torch.optim.SGD(m.parameters(), lr=.1, momentum=.9); s = torch.optim.lr_scheduler.StepLR(o, 3, .5); torch.manual_seed(5 + rank)
    for _ in range(4): m(torch.randn(4, 3)).square().mean().backward(); o.step(); o.zero_grad(); s.step()
    os.makedirs(d := f'{out}/script_ranks/ckpt', exist_ok=True)
    with F.state_dict_type(m, StateDictType.SHARDED_STATE_DICT): torch.save({'model': m.state_dict(), 'optimizer': F.optim_state_dict(m, o), 'sched': s.state_dict(), 'step': 4, 'rng': torch.get_rng_state()}, f'{d}/state-rank{rank}.pt')
    with F.state_dict_type(m, StateDictType.FULL_STATE_DICT): x = {'model': m.state_dict(), 'optimizer': F.optim_state_dict(m, o), 'sched': s.state_dict(), 'step': 4}
    if rank == 0: torch.save(x, f'{out}/script_ranks/whole.pt')
    m = F(nn.Linear(3, 2), device_id=torch.device('cpu')); o = torch.optim.SGD(m.parameters(), lr=.1, momentum=.9); m(torch.randn(4, 3)).square().mean().backward(); o.step()
    os.makedirs(d := f'{out}/script_local/ckpt', exist_ok=True)
    with F.state_dict_type(m, StateDictType.LOCAL_STATE_DICT): torch.save({'model': m.state_dict(), 'optimizer': o.state_dict()}, f'{d}/rank{rank}.pt')
    dist.barrier(); dist.destroy_process_group()
if __name__ == '__main__':
    main()
    for name in ('flat', 'numbers'):                       # the same without planner_data
        x = pickle.load(open(f'{out}/script_{name}/ckpt/.metadata', 'rb')); x.planner_data = None
        pickle.dump(x, open(f'{out}/script_{name}/unplanned', 'wb'), protocol=4)
    torch.multiprocessing.spawn(fsdp, nprocs=2)
