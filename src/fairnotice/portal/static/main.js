// All that moves on the pages begins here.
import { startActing } from "./acting.js";
import { startClock } from "./clock.js";
import { startCopying } from "./copying.js";
import { startLive } from "./live.js";
import { startRollouts } from "./rollout.js";

document.documentElement.classList.add("js");
startClock();
startActing();
startCopying();
startRollouts();
startLive();
