"""The post-processing of a detector: decoding boxes, dropping weak and overlapping ones."""
import torch


def decode(anchors, deltas):
    widths, heights = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
    centers_x, centers_y = (
        anchors[:, 0] + widths / 2 + deltas[:, 0] * widths,
        anchors[:, 1] + heights / 2 + deltas[:, 1] * heights,
    )
    widths, heights = widths * deltas[:, 2].exp(), heights * deltas[:, 3].exp()
    return torch.stack(
        [centers_x - widths / 2, centers_y - heights / 2, centers_x + widths / 2, centers_y + heights / 2], 1
    )


def overlap(box, boxes):
    corner = torch.maximum(box[:2], boxes[:, :2])
    size = (torch.minimum(box[2:], boxes[:, 2:]) - corner).clamp(min=0)
    common = size[:, 0] * size[:, 1]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return common / (areas + (box[2] - box[0]) * (box[3] - box[1]) - common)


def suppress(boxes, scores, threshold):
    kept = []
    order = scores.argsort(descending=True)
    while order.numel() > 0:
        best = order[0]
        kept.append(best.item())
        order = order[1:]
        order = order[overlap(boxes[best], boxes[order]) < threshold]
    return kept


def postprocess(anchors, deltas, logits):
    boxes, scores = decode(anchors, deltas), logits.sigmoid()
    strong = scores > 0.5
    boxes, scores = boxes[strong], scores[strong]
    kept = suppress(boxes, scores, 0.5)
    return boxes[kept], scores[kept]


generator = torch.Generator().manual_seed(0)
corners = torch.rand(40, 2, generator=generator) * 80
boxes, scores = postprocess(
    torch.cat([corners, corners + 20], 1),
    torch.randn(40, 4, generator=generator) * 0.1,
    torch.randn(40, generator=generator),
)
print(len(boxes), round(float(scores[0]), 4))
