export function ButterflyView() { return <div />; }
